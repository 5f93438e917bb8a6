package verify

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// podDocument is the measured document with the containers of the enclave's Pod.
const podDocument = "pod.json"

// publishedRules are the digests of the rules by which the agent of a machine may judge its host:
// those of this release (crds/cloister_crds/measurement/initdata.py).
var publishedRules = []string{
	"sha256:6fd23f075adcb8d75b7e4f3c3922dd143ffeb48a71b6416d6955936d5174f6c1", // Kata Containers 4.1
}

// splitPolicy returns the rules of a policy.rego, and the description of a Pod that they know: one value of
// JSON, so that no rule follows it. Of two rules of a name either admits a request.
func splitPolicy(policy string) (rules, pod string, err error) {
	rules, pod, found := strings.Cut(policy, "\ncloister_pod := ")
	pod, ended := strings.CutSuffix(pod, "\n")
	if !found || !ended {
		return "", "", errors.New("it does not end with the containers of a Pod")
	}
	if !json.Valid([]byte(pod)) {
		return "", "", errors.New("something else than the containers of a Pod follows its rules")
	}
	return rules, pod, nil
}

func digestOf(content string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
}
