package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"cloister.dev/guest/internal/client/verify"
)

// step is one step that passed, or the one that did not.
type step struct {
	Step     string `json:"step"`
	Result   string `json:"result"`
	Compared string `json:"compared"`
}

// verdict is the result of one verification.
type verdict struct {
	host    string
	at      time.Time
	release string
	// measurement is the digest of the expected document; zeros while there is none.
	measurement [sha256.Size]byte
	steps       []step
	// bodiesKey is the key for encrypted bodies that verified evidence binds; empty if there is none.
	bodiesKey string
	onWord    []string
	// onBundle is what rests on the word of a bundle's author.
	onBundle []string
	isBundle bool
	notes    []string
	insecure []string
	failure  *verify.Failure
}

func (v *verdict) passed(name, compared string) {
	v.steps = append(v.steps, step{Step: name, Result: "passed", Compared: compared})
}

// refused returns the verdict with an error. Whatever error there is refuses.
func refused(made verdict, err error) verdict {
	if !errors.As(err, &made.failure) {
		made.failure = &verify.Failure{Class: verify.ClassDocument, Step: "document", Problem: err.Error(), Remedy: "trust nothing that this enclave reports"}
	}
	made.steps = append(made.steps, step{Step: made.failure.Step, Result: "refused", Compared: made.failure.Problem})
	return made
}

// report writes the verdict and returns the exit code.
func (v verdict) report(chosen options, out, messages io.Writer) int {
	code := 0
	if v.failure != nil {
		code = int(v.failure.Class)
	}
	if chosen.json {
		v.writeJSON(out)
		return code
	}
	if chosen.verbose {
		for _, each := range v.steps {
			fmt.Fprintf(out, "%-8s %s: %s\n", each.Result, each.Step, each.Compared)
		}
	}
	for _, each := range v.insecure {
		fmt.Fprintln(messages, "insecure:", each)
	}
	for _, each := range v.notes {
		fmt.Fprintln(messages, "note:", each)
	}
	if len(v.onWord) > 0 {
		fmt.Fprintln(messages, "taken from the operator's word:", strings.Join(v.onWord, ", "))
	}
	if len(v.onBundle) > 0 {
		fmt.Fprintln(messages, "taken from the word of the bundle's author:", strings.Join(v.onBundle, ", "))
	}
	if v.failure != nil {
		fmt.Fprintln(messages, v.failure)
		return code
	}
	what := fmt.Sprintf("the measurement sha256:%x", v.measurement)
	if v.release != "" {
		what = v.release + " by " + what
	}
	who := word(v.host)
	if v.isBundle {
		who = "the enclave that the bundle calls " + who
	}
	fmt.Fprintf(out, "verified: %s runs %s; see docs/verify.md for what that does not prove\n", who, what)
	if v.bodiesKey != "" {
		fmt.Fprintf(out, "key for encrypted bodies (hpke_x25519): %s\n", v.bodiesKey)
	}
	return code
}

func (v verdict) writeJSON(out io.Writer) {
	measurement := ""
	if v.measurement != [sha256.Size]byte{} {
		measurement = fmt.Sprintf("sha256:%x", v.measurement)
	}
	listed := func(values []string) []string { return append([]string{}, values...) }
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(map[string]any{ // nothing can be done where standard output cannot be written
		"verified": v.failure == nil, "failure": v.failure, "host": v.host, "time": v.at.UTC().Format(time.RFC3339),
		"release": v.release, "measurement": measurement, "steps": append([]step{}, v.steps...),
		"on_operators_word": listed(v.onWord), "on_bundle_makers_word": listed(v.onBundle), "notes": listed(v.notes), "insecure": listed(v.insecure),
		"hpke_x25519": v.bodiesKey,
	})
}
