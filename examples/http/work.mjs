// Publish a job over HTTP, take it from a work queue, and ack it. Node needs no package for this.
// Usage: node work.mjs [http://localhost:8010]
const url = process.argv[2] ?? "http://localhost:8010";

async function post(path, body, headers = {}) {
  const answer = await fetch(url + path, { method: "POST", body, headers });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${answer.status} ${text}`);
  return text;
}

// A repeated Idempotency-Key stores nothing, so this request may be repeated.
console.log(await post("/topics/jobs", JSON.stringify({ msg: "from Node" }), { "Idempotency-Key": "node-1" }));

for (;;) {
  const taken = await post("/subscriptions/jobs/node/take?max=10&wait=1s&from=earliest");
  const events = taken.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  if (events.length === 0) break;
  for (const event of events) console.log("working on", event.offset, event.msg);
  await post("/subscriptions/jobs/node/ack", JSON.stringify({ refs: events.map((event) => event.offset) }));
}
