package verify

import (
	"cloister.dev/guest/internal/evidence/attestdoc"
)

// Read reads a document strictly; only Check shows that it is true. The error is a *Failure.
func Read(document []byte) (attestdoc.Parts, error) {
	parts, err := attestdoc.Parse(document)
	if err != nil {
		return attestdoc.Parts{}, malformed(err)
	}
	return parts, nil
}

func malformed(err error) error {
	return refuse(ClassDocument, "document", err.Error(), "ask the enclave's operator which release of Cloister runs it, and use the cloister-verify of that release")
}
