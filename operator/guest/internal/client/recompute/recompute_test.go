package recompute

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

const (
	image     = "registry.example/web@sha256:abababababababababababababababababababababababababababababababab"
	fileText  = "cvm-version: 0.10.0\ngpus: 1\ncontainers:\n- name: web\n  image: " + image + "\n"
	hostText  = "apiVersion: cloister.dev/v1alpha1\nkind: Host\nmetadata: {name: snp}\nspec:\n  tee: SNP\n  teeUnit: Pod\n  runtimeClassName: kata-qemu-snp\n  gpu: {resource: nvidia.com/gpu}\n  sizing: {overheadCpuMilli: 500}\n  initdata:\n  - {name: aa.toml, content: \"x\\u2028<\"}\n"
	published = "sha256:0123"
)

// honest returns inputs and the measurement that the operator publishes for them.
func honest() (map[string]any, Inputs) {
	inputs := Inputs{
		Service: "cloister", Config: []byte(fileText), HostProfile: []byte(hostText), Documents: map[string]string{"agent.json": "{}"},
		GuestImage: "guest@" + digestOf(nil), ShimImage: "shim@" + digestOf(nil),
	}
	return map[string]any{
		"version": "cloister.dev/measurement/v2", "service": "cloister", "configDigest": digestOf(inputs.Config), "debug": false, "gpus": json.Number("1"),
		"containers": []any{map[string]any{"name": "web", "image": image}}, "documents": map[string]any{"agent.json": digestOf([]byte("{}"))},
		"guestImage": inputs.GuestImage, "shimImage": inputs.ShimImage,
		"host": map[string]any{
			"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp", "networkIsolation": "Container", "gpuResource": "nvidia.com/gpu",
			"sizing":   map[string]any{"overheadCpuMilli": json.Number("500"), "overheadMemoryMB": json.Number("128")},
			"initdata": map[string]any{"aa.toml": digestOf([]byte("x\u2028<")), "policy.rego": published},
		},
	}, inputs
}

func TestTheOperatorsMeasurementIsComputed(t *testing.T) {
	document, inputs := honest()
	result, err := Compute(encode(document), inputs)
	if err != nil || len(result.OnWord) != 0 || len(result.Compared) != 10 {
		t.Fatalf("%v, %v", result, err)
	}
}

func TestWhatTheClientDoesNotHaveIsNamed(t *testing.T) {
	document, inputs := honest()
	inputs.HostProfile, inputs.Documents, inputs.GuestImage, inputs.ShimImage = nil, nil, "", ""
	document["host"], document["documents"], document["guestImage"] = map[string]any{"tee": "TDX"}, map[string]any{"x": "y"}, "other"
	result, err := Compute(encode(document), inputs)
	if err != nil || !slices.Equal(result.OnWord, []string{partHost, partDocuments, partGuestImage, partShimImage}) {
		t.Fatalf("%v, %v", result, err)
	}
}

func TestDigestsOfImagesFitEveryName(t *testing.T) {
	document, inputs := honest()
	inputs.GuestImage = digestOf(nil)
	if _, err := Compute(encode(document), inputs); err != nil {
		t.Fatal(err)
	}
	document["guestImage"] = "guest@" + digestOf([]byte("other"))
	var different *Difference
	if _, err := Compute(encode(document), inputs); !errors.As(err, &different) || different.Part != "guestImage" {
		t.Fatal(err)
	}
}

// paths are the paths of all values of a document that hold no others.
func paths(path string, value any) []string {
	found := []string{}
	switch held := value.(type) {
	case map[string]any:
		for name, each := range held {
			found = append(found, paths(path+"/"+name, each)...)
		}
	case []any:
		for _, each := range held {
			found = append(found, paths(path+"/0", each)...)
		}
	default:
		found = append(found, path)
	}
	return found
}

func TestEachFieldThatDiffersIsNamed(t *testing.T) {
	document, inputs := honest()
	all := paths("", document)
	if len(all) != 19 {
		t.Fatalf("%q", all)
	}
	for _, path := range all {
		if strings.HasSuffix(path, "/policy.rego") { // the verifier compares it with the published digests
			continue
		}
		for _, value := range []any{"other", nil} {
			spoiled, _ := honest()
			setAt(spoiled, strings.Split(path, "/")[1:], value)
			var different *Difference
			if _, err := Compute(encode(spoiled), inputs); !errors.As(err, &different) || !strings.HasPrefix(path, "/"+strings.FieldsFunc(different.Part, func(each rune) bool { return each == '.' || each == '[' })[0]) {
				t.Errorf("%s as %v: %v", path, value, err)
			}
		}
	}
	spoiled, _ := honest()
	spoiled["more"] = "x"
	if _, err := Compute(encode(spoiled), inputs); err == nil || !strings.Contains(err.Error(), "more") {
		t.Error(err)
	}
}

func setAt(tree any, path []string, value any) {
	switch held := tree.(type) {
	case map[string]any:
		if len(path) > 1 {
			setAt(held[path[0]], path[1:], value)
			return
		}
		if held[path[0]] = value; value == nil {
			delete(held, path[0])
		}
	case []any:
		setAt(held[0], path[1:], value)
	}
}

func TestOtherFormsOfTheMeasurementAreRefused(t *testing.T) {
	document, inputs := honest()
	text := encode(document)
	for name, spoiled := range map[string]string{
		"space": text + " ", "twice": strings.Replace(text, "{", `{"debug":true,`, 1), "list": "[]", "nothing": "", "escapes": strings.Replace(text, "web", `\u0077eb`, 1),
	} {
		if _, err := Compute(spoiled, inputs); err == nil {
			t.Errorf("%s: computed", name)
		}
	}
}

func TestInputsThatCannotBeReadAreNamed(t *testing.T) {
	for name, spoil := range map[string]func(*Inputs){
		"not YAML":       func(i *Inputs) { i.Config = []byte("a: [") },
		"no containers":  func(i *Inputs) { i.Config = []byte("containers: []\n") },
		"no image":       func(i *Inputs) { i.Config = []byte("containers:\n- name: web\n") },
		"gpus":           func(i *Inputs) { i.Config = []byte("gpus: many\n" + fileText[len("cvm-version: 0.10.0\ngpus: 1\n"):]) },
		"key twice":      func(i *Inputs) { i.Config = []byte(fileText + "gpus: 1\n") },
		"alias":          func(i *Inputs) { i.Config = []byte("x: &a 1\ny: *a\n" + fileText) },
		"merge":          func(i *Inputs) { i.Config = []byte("<<: {}\n" + fileText) },
		"tag":            func(i *Inputs) { i.Config = []byte("x: !!str 1\n" + fileText) },
		"two documents":  func(i *Inputs) { i.Config = []byte(fileText + "---\na: 1\n") },
		"too large":      func(i *Inputs) { i.Config = []byte(fileText + strings.Repeat("#", maxFile)) },
		"other kind":     func(i *Inputs) { i.HostProfile = []byte("kind: Pod\napiVersion: v1\n") },
		"other group":    func(i *Inputs) { i.HostProfile = []byte("kind: Host\napiVersion: example.com/v1\n") },
		"sizing":         func(i *Inputs) { i.HostProfile = []byte(strings.Replace(hostText, "500", "many", 1)) },
		"initdata":       func(i *Inputs) { i.HostProfile = []byte(strings.Replace(hostText, "name: aa.toml, ", "", 1)) },
		"initdata twice": func(i *Inputs) { i.HostProfile = []byte(hostText + "  - {name: aa.toml, content: x}\n") },
	} {
		document, inputs := honest()
		spoil(&inputs)
		var input *InputError
		if _, err := Compute(encode(document), inputs); !errors.As(err, &input) || input.Input == "" || input.Problem == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefaultsOfAHostAreThoseOfItsKind(t *testing.T) {
	host, err := hostPart([]byte("apiVersion: cloister.dev/v1alpha1\nkind: Host\n"), 0, nil)
	if err != nil || encode(host) != `{"initdata":{},"networkIsolation":"Container","sizing":{"overheadCpuMilli":0,"overheadMemoryMB":128},"tee":"None"}` {
		t.Fatalf("%s, %v", encode(host), err)
	}
}
