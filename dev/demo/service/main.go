// The demo's web service: it says hello with the version it was built as.
//
// "hello" serves; "hello health" asks the serving process whether it is well and is the
// healthcheck of the configuration file, since the image holds this one program and no shell.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

// version is set at build time to the release's tag.
var version = "unreleased"

const address = "127.0.0.1:8080"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "health" {
		os.Exit(health())
	}
	greeting := os.Getenv("GREETING")
	if greeting == "" {
		greeting = "Hello"
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s from %s at %s\n", greeting, version, os.Getenv("DOMAIN"))
	})
	http.HandleFunc("/internal/health", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Addr: "0.0.0.0:8080", ReadHeaderTimeout: 10 * time.Second}
	log.Printf("hello %s listens on %s", version, server.Addr)
	log.Fatal(server.ListenAndServe())
}

// health answers the exit code: 0 when the serving process answers.
func health() int {
	client := http.Client{Timeout: 2 * time.Second}
	answer, err := client.Get("http://" + address + "/internal/health")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		fmt.Println(answer.Status)
		return 1
	}
	return 0
}
