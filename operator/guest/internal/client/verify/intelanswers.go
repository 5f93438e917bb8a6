package verify

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cloister.dev/guest/internal/foundation/strictjson"
)

// issuedAnswers refuses answers of Intel's that are of the future, or have anything that Intel has not
// signed. The library compares only when they were to be replaced; and it verifies the signature of the
// field tcbInfo, but works by TcbInfo where that follows: anyone who carries an answer could add levels and
// identities of their own, and so sign quotes by any program.
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
	issued, err := issueDate(body)
	if err != nil {
		return err
	}
	if a.now.Before(issued) {
		return fmt.Errorf("a response from Intel is dated in the future: %s", issued.Format(time.RFC3339))
	}
	return nil
}

// issueDate returns when an answer was issued, which is a revocation list, or JSON with what Intel signed and
// the signature.
func issueDate(body []byte) (time.Time, error) {
	if list, err := x509.ParseRevocationList(body); err == nil {
		return list.ThisUpdate, nil
	}
	answer, err := strictjson.Decode[map[string]json.RawMessage](body)
	if err != nil {
		return time.Time{}, fmt.Errorf("a response from Intel cannot be read: %w", err)
	}
	_, isSigned := answer["signature"]
	for _, name := range []string{"tcbInfo", "enclaveIdentity"} {
		signed, found := answer[name]
		if !found || !isSigned || len(answer) != 2 {
			continue
		}
		var dated struct {
			IssueDate time.Time `json:"issueDate"`
		}
		if err := json.Unmarshal(signed, &dated); err != nil {
			return time.Time{}, fmt.Errorf("a response from Intel cannot be read: %w", err)
		}
		return dated.IssueDate, nil
	}
	return time.Time{}, errors.New("a response from Intel has fields other than the signed one and its signature")
}
