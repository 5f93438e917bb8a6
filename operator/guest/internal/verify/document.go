package verify

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"cloister.dev/guest/internal/attestation"
	"cloister.dev/guest/internal/strictjson"
)

// Formats of documents.
const (
	formatSNP   = "https://cloister.dev/attestation/sev-snp-guest/v2"
	formatTDX   = "https://cloister.dev/attestation/tdx-guest/v2"
	formatDummy = "https://cloister.dev/attestation/dummy/v2"
)

// content is a document whose parts are unpacked.
type content struct {
	attestation.Document
	body     []byte
	initdata []byte
}

func parse(document []byte) (content, error) {
	decoded, err := strictjson.Decode[attestation.Document](document)
	if err != nil {
		return content{}, malformed(err)
	}
	if err := checkNames(document); err != nil {
		return content{}, malformed(err)
	}
	read := content{Document: decoded}
	if read.body, err = unpack("body", decoded.Body); err != nil {
		return content{}, malformed(err)
	}
	if decoded.Initdata == "" {
		return read, nil
	}
	if read.initdata, err = unpack("initdata", decoded.Initdata); err != nil {
		return content{}, malformed(err)
	}
	return read, nil
}

// names are the fields of a document. The decoder also takes them in another case, which
// other clients read as unknown fields.
var names = []string{"format", "body", "gpu_body", "measurement", "initdata", "nonce"}

func checkNames(document []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return err
	}
	for name := range fields {
		if !slices.Contains(names, name) {
			return fmt.Errorf("field %q is not known", name)
		}
	}
	return nil
}

// unpack decodes base64 of gzip of at most strictjson.MaxDocument bytes.
func unpack(field, packed string) ([]byte, error) {
	compressed, err := base64.StdEncoding.Strict().DecodeString(packed)
	if err != nil {
		return nil, fmt.Errorf("%s is not base64: %w", field, err)
	}
	source := bytes.NewReader(compressed)
	reader, err := gzip.NewReader(source)
	if err != nil {
		return nil, fmt.Errorf("%s is not gzip: %w", field, err)
	}
	reader.Multistream(false)
	unpacked, err := io.ReadAll(io.LimitReader(reader, strictjson.MaxDocument+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s is not gzip: %w", field, err)
	case len(unpacked) > strictjson.MaxDocument:
		return nil, fmt.Errorf("%s: %w", field, strictjson.ErrTooLarge)
	case source.Len() != 0:
		return nil, errors.New(field + ": bytes follow after the gzip stream")
	}
	return unpacked, nil
}

func malformed(err error) error {
	return refuse(ClassDocument, "document", err.Error(), "ask the enclave's operator which release of Cloister runs it, and use the cloister-verify of that release")
}
