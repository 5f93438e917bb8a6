// Command kstatus says how objects are, in the words of kstatus, the library by which
// Flux waits for what it has applied. It reads a JSON list of objects and writes a JSON
// list of their statuses, in the same order.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var objects []unstructured.Unstructured
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return err
	}
	found := make([]map[string]string, 0, len(objects))
	for index := range objects {
		result, err := status.Compute(&objects[index])
		if err != nil {
			return err
		}
		found = append(found, map[string]string{
			"status":  result.Status.String(),
			"message": result.Message,
		})
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
