// Publish a job over HTTP, take it from a work queue, and ack it. Java needs no library for this.
// Usage: java Work.java [http://localhost:8010]
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

class Work {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final Pattern OFFSET = Pattern.compile("\"offset\":(\\d+)");

    static String post(String address, String body, String key) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(address)).POST(HttpRequest.BodyPublishers.ofString(body));
        if (key != null) request.header("Idempotency-Key", key);
        var answer = CLIENT.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new IllegalStateException(answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    public static void main(String[] words) throws Exception {
        var url = words.length > 0 ? words[0] : "http://localhost:8010";
        // A repeated Idempotency-Key stores nothing, so this request may be repeated.
        System.out.print(post(url + "/topics/jobs", "{\"msg\":\"from Java\"}", "java-1"));
        while (true) {
            var taken = post(url + "/subscriptions/jobs/java/take?max=10&wait=1s&from=earliest", "", null);
            if (taken.isEmpty()) return;
            System.out.print(taken.lines().map(line -> "working on " + line + "\n").collect(Collectors.joining()));
            // A real program uses a JSON library here.
            var refs = taken.lines().map(OFFSET::matcher).filter(found -> found.find()).map(found -> found.group(1));
            post(url + "/subscriptions/jobs/java/ack", "{\"refs\":[" + refs.collect(Collectors.joining(",")) + "]}", null);
        }
    }
}
