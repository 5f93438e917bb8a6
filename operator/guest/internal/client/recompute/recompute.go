// Package recompute computes the measurement document of an enclave from what its client has: the
// configuration file, the Host's manifest, the images of the platform and the enclave's documents.
//
// It is pure. What the client does not have is taken from the document that the enclave published,
// and named, so that a verdict can say on whose word it rests.
package recompute

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cloister.dev/guest/internal/foundation/measured"
)

// policyFile is the initdata file with the rules of the machine's agent. Where the Host has none of
// its own they are the release's, and the verifier compares their digest with the published ones.
const policyFile = "policy.rego"

// Inputs are what a client has. Nil and empty fields are what it does not have.
type Inputs struct {
	// Service is the service name of the installation.
	Service string
	// Config is the configuration file.
	Config []byte
	// HostProfile is the manifest of the Host, YAML.
	HostProfile []byte
	// Documents are the enclave's documents, text by name.
	Documents map[string]string
	// GuestImage and ShimImage are the platform's images with their digests.
	GuestImage string
	ShimImage  string
	// GPUs is the number that the request names; nil means the file's.
	GPUs *int
}

// Parts of the measurement that can be taken from the operator's word.
const (
	partHost       = "host"
	partDocuments  = "documents"
	partGuestImage = "guestImage"
	partShimImage  = "shimImage"
)

// Compared is one part of the measurement that agrees with the client's inputs.
type Compared struct {
	// Part is the path of the part.
	Part string
	// From is what it was computed from.
	From string
	// Value is the value of both, shortened to a digest where it is long.
	Value string
}

// Result is a measurement that agrees with the inputs.
type Result struct {
	// Digest is the digest of the measurement document.
	Digest [sha256.Size]byte
	// Compared are the parts that were computed.
	Compared []Compared
	// OnWord are the parts that were taken from the published document.
	OnWord []string
}

// InputError is an input that cannot be used.
type InputError struct {
	// Input names it.
	Input string
	// Problem is what is wrong with it.
	Problem string
}

// Error returns the input and its problem.
func (e *InputError) Error() string { return e.Input + ": " + e.Problem }

// Difference is a part of the published document that is not what the inputs give.
type Difference struct {
	// Part is the path of the part.
	Part string
	// Published and Computed are the two values as JSON; empty where there is none.
	Published, Computed string
}

// Error returns the part and both values.
func (d *Difference) Error() string {
	return fmt.Sprintf("%s: the enclave reports %s, computed is %s", d.Part, shown(d.Published), shown(d.Computed))
}

// Compute computes the measurement document and compares it with the published one. The error is
// an *InputError, a *Difference, or says why the published text is not a measurement document.
func Compute(published string, inputs Inputs) (Result, error) {
	given, err := readPublished(published)
	if err != nil {
		return Result{}, err
	}
	made, result, err := compute(given, inputs)
	if err != nil {
		return Result{}, err
	}
	for _, part := range made {
		if difference := compare(part.path, given[part.path], part.value); difference != nil {
			return Result{}, difference
		}
		result.Compared = append(result.Compared, Compared{Part: part.path, From: part.from, Value: short(part.value)})
		delete(given, part.path)
	}
	for _, part := range result.OnWord {
		delete(given, part)
	}
	for name := range given { // whatever is left is known to no input
		return Result{}, &Difference{Part: name, Published: encode(given[name])}
	}
	result.Digest = sha256.Sum256([]byte(published))
	return result, nil
}

// part is a computed part of the document.
type part struct {
	path  string
	value any
	from  string
}

// compute returns the parts that the inputs decide; the result has those that they do not.
func compute(given map[string]any, inputs Inputs) ([]part, Result, error) {
	var result Result
	file, err := readConfig(inputs.Config)
	if err != nil {
		return nil, result, &InputError{"configuration file", err.Error()}
	}
	gpus, gpusFrom := file.gpus, "the configuration file"
	if inputs.GPUs != nil {
		gpus, gpusFrom = *inputs.GPUs, "an option"
	}
	made := []part{
		{"version", measured.Version, "this program"},
		{"service", inputs.Service, "an option"},
		{"configDigest", digestOf(inputs.Config), "the configuration file"},
		{"containers", file.containers, "the configuration file"},
		{"gpus", json.Number(fmt.Sprint(gpus)), gpusFrom},
		{"debug", false, "this program"},
	}
	if inputs.HostProfile == nil {
		result.OnWord = append(result.OnWord, partHost)
	} else {
		host, err := hostPart(inputs.HostProfile, gpus, given[partHost])
		if err != nil {
			return nil, result, &InputError{"host profile", err.Error()}
		}
		made = append(made, part{partHost, host, "the host profile"})
	}
	if inputs.Documents == nil {
		result.OnWord = append(result.OnWord, partDocuments)
	} else {
		digests := map[string]any{}
		for name, text := range inputs.Documents {
			digests[name] = digestOf([]byte(text))
		}
		made = append(made, part{partDocuments, digests, "the documents"})
	}
	for _, image := range []struct{ part, value string }{{partGuestImage, inputs.GuestImage}, {partShimImage, inputs.ShimImage}} {
		if image.value == "" {
			result.OnWord = append(result.OnWord, image.part)
			continue
		}
		made = append(made, part{image.part, imagePart(image.value, given[image.part]), "the images that were named"})
	}
	return made, result, nil
}

// imagePart returns what an image must be. A digest without a name fits every name: mirrors have other names,
// and the digest decides what runs.
func imagePart(expected string, given any) any {
	text, _ := given.(string)
	if strings.HasPrefix(expected, "sha256:") && strings.HasSuffix(text, "@"+expected) {
		return text
	}
	return expected
}

// readPublished reads the published document, which must be in its one canonical form: of a text
// that has a field twice, two readers could see different ones.
func readPublished(text string) (map[string]any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var given map[string]any
	if err := decoder.Decode(&given); err != nil {
		return nil, fmt.Errorf("the measurement is not a JSON object: %w", err)
	}
	if encode(given) != text {
		return nil, errors.New("the measurement is not in its canonical form (RFC 8785)")
	}
	return given, nil
}

// encode returns the canonical form of a value (RFC 8785, for documents without fractions).
func encode(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // values come from JSON, or are made of strings and maps
	// The encoder escapes two separators of lines that the canonical form has as they are.
	return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(text.String(), "\n"))
}

// compare returns the first difference between two values.
func compare(path string, published, computed any) error {
	left, isObject := published.(map[string]any)
	right, alsoObject := computed.(map[string]any)
	if isObject && alsoObject {
		names := slices.Sorted(maps.Keys(left))
		for _, name := range slices.Sorted(maps.Keys(right)) {
			if _, there := left[name]; !there {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if err := compare(path+"."+name, left[name], right[name]); err != nil {
				return err
			}
		}
		return nil
	}
	listed, isList := published.([]any)
	expected, alsoList := computed.([]any)
	if isList && alsoList && len(listed) == len(expected) {
		for index := range listed {
			if err := compare(fmt.Sprintf("%s[%d]", path, index), listed[index], expected[index]); err != nil {
				return err
			}
		}
		return nil
	}
	if left, right := encode(published), encode(computed); left != right {
		return &Difference{Part: path, Published: left, Computed: right}
	}
	return nil
}

// short returns a value as steps show it.
func short(value any) string {
	text := encode(value)
	if len(text) > 120 {
		return digestOf([]byte(text))
	}
	return strings.Trim(text, `"`)
}

func shown(text string) string {
	switch {
	case text == "" || text == "null":
		return "nothing"
	case len(text) > 400:
		return text[:400] + "…"
	}
	return text
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }
