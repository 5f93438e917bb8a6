package unmeasured

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
)

func valid() Document {
	return Document{Version: Version, Hostnames: []string{"web.acme.example.com"}, Labels: Labels{ID: "1", Image: "acme/web@v1"}}
}

func TestTheDocumentBesideAnotherIsRead(t *testing.T) {
	directory := t.TempDir()
	text, err := json.Marshal(valid())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, FileName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := ReadFor(filepath.Join(directory, "agent.json"))
	if err != nil || read.Domain() != "web.acme.example.com" || (Document{}).Domain() != "" {
		t.Errorf("%+v %v", read, err)
	}
}

func TestValuesThatCouldBeMoreThanNamesAreRefused(t *testing.T) {
	for field, change := range map[string]func(*Document){
		"version":                              func(d *Document) { d.Version = 0 },
		"hostnames: 9":                         func(d *Document) { d.Hostnames = make([]string, maxHostnames+1) },
		`hostnames[0]: "{env.SECRET}"`:         func(d *Document) { d.Hostnames[0] = "{env.SECRET}" },
		`hostnames[0]: "../x.example"`:         func(d *Document) { d.Hostnames[0] = "../x.example" },
		`hostnames[0]: "*.example.com"`:        func(d *Document) { d.Hostnames[0] = "*.example.com" },
		`hostnames[1]: "web.acme.example.com"`: func(d *Document) { d.Hostnames = append(d.Hostnames, d.Hostnames[0]) },
		"labels.id":                            func(d *Document) { d.Labels.ID = "1\n2" },
		"labels.image":                         func(d *Document) { d.Labels.Image = strings.Repeat("x", maxLabel+1) },
	} {
		document := valid()
		change(&document)
		if err := document.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
}

// What H7 of the security review moved: paths, commands, addresses and keys of ours.
func TestNothingElseHasAPlace(t *testing.T) {
	for _, field := range []string{
		`"key":"/run/x"`, `"attestation":{"key":"/run/x"}`, `"command":["sh"]`, `"upstream":"10.0.0.1"`,
		`"api":{"url":"https://evil.example"}`, `"caFile":"/x"`, `"egress":"open"`, `"debug":true`,
	} {
		text := `{"version":1,"hostnames":[],"labels":{"id":"","image":"","cpuType":"","gpuType":""},` + field + `}`
		if _, err := strictjson.Parse[Document]([]byte(text)); err == nil {
			t.Errorf("accepted: %s", field)
		}
	}
}
