// Publish a job over HTTP, take it from a work queue, and ack it.
// Usage: go run work.go [http://localhost:8010]
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

type event struct {
	Offset int64
	Msg    any
}

func post(address, body, key string) string {
	request, err := http.NewRequest("POST", address, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		log.Fatal(answer.Status, string(text), err)
	}
	return string(text)
}

func main() {
	url := "http://localhost:8010"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	// A repeated Idempotency-Key stores nothing, so this request may be repeated.
	fmt.Print(post(url+"/topics/jobs", `{"msg":"from Go"}`, "go-1"))
	for {
		refs := []int64{}
		taken := post(url+"/subscriptions/jobs/go/take?max=10&wait=1s&from=earliest", "", "")
		for lines := bufio.NewScanner(strings.NewReader(taken)); lines.Scan(); {
			var one event
			if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
				log.Fatal(err)
			}
			fmt.Println("working on", one.Offset, one.Msg)
			refs = append(refs, one.Offset)
		}
		if len(refs) == 0 {
			return
		}
		body, _ := json.Marshal(map[string]any{"refs": refs})
		post(url+"/subscriptions/jobs/go/ack", string(body), "")
	}
}
