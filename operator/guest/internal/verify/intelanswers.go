package verify

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"time"
)

// issuedAnswers refuses answers of Intel's that are of the future. The library compares only when they
// were to be replaced.
type issuedAnswers struct {
	source intelSource
	now    time.Time
	err    error
}

// Get implements the library's interface.
func (a *issuedAnswers) Get(address string) (map[string][]string, []byte, error) {
	header, body, err := a.source.Get(address)
	if err == nil {
		err = a.check(body)
	}
	if err != nil && a.err == nil {
		a.err = err
	}
	return header, body, err
}

func (a *issuedAnswers) check(body []byte) error {
	issued := issueDate(body)
	if a.now.Before(issued) {
		return fmt.Errorf("an answer of Intel's is of the future: %s", issued.Format(time.RFC3339))
	}
	return nil
}

// issueDate returns when an answer was issued; zero for what the library will not read either.
func issueDate(body []byte) time.Time {
	if list, err := x509.ParseRevocationList(body); err == nil {
		return list.ThisUpdate
	}
	type dated struct {
		IssueDate time.Time `json:"issueDate"`
	}
	var answer struct {
		Levels   dated `json:"tcbInfo"`
		Identity dated `json:"enclaveIdentity"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return time.Time{}
	}
	if !answer.Levels.IssueDate.IsZero() {
		return answer.Levels.IssueDate
	}
	return answer.Identity.IssueDate
}
