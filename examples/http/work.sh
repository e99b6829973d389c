#!/usr/bin/env bash
# Publish a job over HTTP, take it from a work queue, and ack it. Needs curl.
# Usage: work.sh [http://localhost:8010]
set -euo pipefail
url=${1:-http://localhost:8010}

# A repeated Idempotency-Key stores nothing, so this request may be repeated.
curl -sS --fail-with-body "$url/topics/jobs" -H 'Idempotency-Key: bash-1' -d '{"msg":"from bash"}'

# The events stay in flight for this subscription until they are acked, or until their timeout ends.
while taken=$(curl -sS --fail-with-body -X POST "$url/subscriptions/jobs/bash/take?max=10&wait=1s&from=earliest") && [ -n "$taken" ]; do
  while read -r event; do
    echo "working on $event"
    offset=$(sed 's/.*"offset":\([0-9]*\).*/\1/' <<<"$event")
    curl -sS --fail-with-body "$url/subscriptions/jobs/bash/ack" -d "{\"refs\":[$offset]}"
  done <<<"$taken"
done
