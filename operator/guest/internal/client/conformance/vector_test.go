package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cloister.dev/guest/internal/client/verify"
)

// vector is one entry of vectors.json. README.md next to it describes the fields for others.
type vector struct {
	Name string `json:"name"`
	// About describes what was damaged, and how.
	About string `json:"about"`
	// Base is the name of the bundle that the document is from: snp, tdx or none.
	Base string `json:"base"`
	// Set are values by JSON Pointer, in the order in which they are set; Remove are pointers.
	Set    []edit   `json:"set,omitempty"`
	Remove []string `json:"remove,omitempty"`
	// Replace is a text of the document and what stands in place of its first occurrence.
	Replace []string `json:"replace,omitempty"`
	// Client replaces what the base's client knows.
	Client *client `json:"client,omitempty"`
	// Verdict is what every verifier must find.
	Verdict verdict `json:"verdict"`
}

type edit struct {
	Pointer string          `json:"pointer"`
	Value   json.RawMessage `json:"value"`
}

// client is what a client knows that is not in the document.
type client struct {
	Nonce string `json:"nonce,omitempty"`
	SPKI  string `json:"tls_spki_sha256,omitempty"`
	// Certificate is one with that key, DER, where it is not the base's.
	Certificate []byte   `json:"certificate,omitempty"`
	Measurement string   `json:"measurement,omitempty"`
	Platform    []string `json:"platform,omitzero"`
	MinimumTCB  string   `json:"minimum_tcb,omitempty"`
	Time        string   `json:"time,omitempty"`
	// Roots is "makers" where the client trusts only AMD and Intel.
	Roots string `json:"roots,omitempty"`
}

type verdict struct {
	Verified bool         `json:"verified"`
	Code     verify.Class `json:"code"`
	Step     string       `json:"step,omitempty"`
}

// apply returns the document of a vector, made from that of its base.
func (v vector) apply(t *testing.T, base []byte) []byte {
	t.Helper()
	if len(v.Replace) == 2 {
		if !bytes.Contains(base, []byte(v.Replace[0])) {
			t.Fatalf("%s: the document has no %q", v.Name, v.Replace[0])
		}
		return bytes.Replace(base, []byte(v.Replace[0]), []byte(v.Replace[1]), 1)
	}
	if len(v.Set)+len(v.Remove) == 0 {
		return base
	}
	tree := parsed(t, base)
	for _, each := range v.Set {
		var value any
		if err := json.Unmarshal(each.Value, &value); err != nil {
			t.Fatal(err)
		}
		tree = put(tree, strings.Split(each.Pointer, "/")[1:], value, false)
	}
	for _, pointer := range v.Remove {
		tree = put(tree, strings.Split(pointer, "/")[1:], nil, true)
	}
	return marshal(t, tree)
}

// put returns a tree in which the value at a path is another one, or is not there.
func put(tree any, path []string, value any, remove bool) any {
	switch held := tree.(type) {
	case map[string]any:
		made := maps.Clone(held)
		switch {
		case len(path) > 1:
			made[path[0]] = put(held[path[0]], path[1:], value, remove)
		case remove:
			delete(made, path[0])
		default:
			made[path[0]] = value
		}
		return made
	case []any:
		made := slices.Clone(held)
		index, err := strconv.Atoi(path[0])
		switch {
		case err != nil:
			panic(fmt.Sprintf("%q is not an index", path[0])) // a mistake in the vectors
		case len(path) > 1:
			made[index] = put(held[index], path[1:], value, remove)
		case remove:
			made = slices.Delete(made, index, index+1)
		case index == len(made):
			made = append(made, value)
		default:
			made[index] = value
		}
		return made
	}
	panic(fmt.Sprintf("there is nothing at %q", path)) // a mistake in the vectors
}

// difference returns the edits that make one document from another.
func difference(t *testing.T, base, made []byte) []edit {
	t.Helper()
	var edits []edit
	var walk func(pointer string, left, right any)
	walk = func(pointer string, left, right any) {
		was, isObject := left.(map[string]any)
		is, alsoObject := right.(map[string]any)
		if isObject && alsoObject && slices.Equal(slices.Sorted(maps.Keys(was)), slices.Sorted(maps.Keys(is))) {
			for _, name := range slices.Sorted(maps.Keys(is)) {
				walk(pointer+"/"+name, was[name], is[name])
			}
			return
		}
		wasList, isList := left.([]any)
		isNow, alsoList := right.([]any)
		if isList && alsoList && len(wasList) == len(isNow) {
			for index := range isNow {
				walk(pointer+"/"+strconv.Itoa(index), wasList[index], isNow[index])
			}
			return
		}
		if !bytes.Equal(marshal(t, left), marshal(t, right)) {
			edits = append(edits, edit{pointer, marshal(t, right)})
		}
	}
	walk("", parsed(t, base), parsed(t, made))
	return edits
}

func parsed(t *testing.T, text []byte) any {
	t.Helper()
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	var made bytes.Buffer
	encoder := json.NewEncoder(&made)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(made.Bytes(), []byte("\n"))
}
