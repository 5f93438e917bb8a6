// Package strictjson decodes the JSON documents that the guest reads.
//
// Every spec and every message that crosses a trust boundary of the enclave goes through
// Decode. It accepts one document, bounded in size, without unknown fields, without
// duplicate fields and without anything after it: a measured file must not contain text
// that is not read.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxDocument is the largest document in bytes that Decode reads.
const MaxDocument = 1 << 20

const maxDepth = 32

// ErrTooLarge is returned for a document beyond MaxDocument.
var ErrTooLarge = errors.New("the document is larger than allowed")

// Decode decodes one JSON document of type T.
//
// It fails, naming the field, if a field is unknown, is given twice, differs in case from
// its definition or has another type, or if text follows.
func Decode[T any](data []byte) (T, error) { return DecodeUpTo[T](data, MaxDocument) }

// DecodeUpTo is Decode for documents of another size at most.
func DecodeUpTo[T any](data []byte, most int) (T, error) {
	var value T
	if len(data) > most {
		return value, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), most)
	}
	if err := checkTokens(data); err != nil {
		return value, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		var zero T
		return zero, fmt.Errorf("not a valid document: %w", err)
	}
	return value, nil
}

// DecodeFile reads a file of at most MaxDocument bytes with Decode.
func DecodeFile[T any](path string) (T, error) {
	var zero T
	file, err := os.Open(path)
	if err != nil {
		return zero, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxDocument+1))
	if err != nil {
		return zero, fmt.Errorf("%s: %w", path, err)
	}
	value, err := Decode[T](data)
	if err != nil {
		return zero, fmt.Errorf("%s: %w", path, err)
	}
	return value, nil
}

// Validator is a document that can validate its fields.
type Validator interface {
	// Validate returns an error that names every invalid field.
	Validate() error
}

// Read reads a file with DecodeFile and validates the document in it.
func Read[T Validator](path string) (T, error) {
	document, err := DecodeFile[T](path)
	if err != nil {
		return document, err
	}
	if err := document.Validate(); err != nil {
		var zero T
		return zero, fmt.Errorf("%s: %w", path, err)
	}
	return document, nil
}

// Parse decodes a document with Decode and validates it.
func Parse[T Validator](data []byte) (T, error) {
	document, err := Decode[T](data)
	if err != nil {
		return document, err
	}
	return document, document.Validate()
}

// checkTokens refuses what encoding/json accepts: duplicate keys, keys that differ from a
// known one only in case (duplicates to the decoder), deep nesting and trailing text.
func checkTokens(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := checkValue(decoder, "", 0); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows after the document")
	}
	return nil
}

func checkValue(decoder *json.Decoder, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: nested deeper than %d", path, maxDepth)
	}
	token, err := decoder.Token()
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	switch token {
	case json.Delim('{'):
		return checkObject(decoder, path, depth)
	case json.Delim('['):
		for index := 0; decoder.More(); index++ {
			if err := checkValue(decoder, fmt.Sprintf("%s[%d]", path, index), depth+1); err != nil {
				return err
			}
		}
		_, err = decoder.Token()
	}
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

func checkObject(decoder *json.Decoder, path string, depth int) error {
	seen := map[string]string{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		key, _ := token.(string)
		field := strings.TrimPrefix(path+"."+key, ".")
		if other, found := seen[strings.ToLower(key)]; found {
			return fmt.Errorf("%s: given twice (as %q and %q)", field, other, key)
		}
		seen[strings.ToLower(key)] = key
		if err := checkValue(decoder, field, depth+1); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}
