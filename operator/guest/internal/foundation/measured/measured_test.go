package measured

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crypto/sha256"
)

// document is a document of these tests.
type document struct {
	Name string `json:"name"`
}

// Validate returns an error without a name.
func (d document) Validate() error {
	if d.Name == "" {
		return errors.New("name: is missing")
	}
	return nil
}

func digest(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// installed installs a measurement that names one document, and returns the directory for documents.
func installed(t *testing.T, name, text string) string {
	t.Helper()
	before := root
	root = t.TempDir()
	t.Cleanup(func() { root = before })
	write(t, Path(FileName), fmt.Sprintf(`{"version":%q,"documents":{%q:%q},"configDigest":%q,"service":"s"}`, Version, name, digest(text), digest("file")))
	return t.TempDir()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheMeasuredDocumentIsRead(t *testing.T) {
	const text = `{"name":"web"}`
	path := filepath.Join(installed(t, "a.json", text), "a.json")
	write(t, path, text)
	if read, err := Read[document](path); err != nil || read.Name != "web" {
		t.Errorf("%+v %v", read, err)
	}
	measurement, err := Load()
	if err != nil || measurement.CheckConfig([]byte("file")) != nil || measurement.CheckConfig([]byte("other")) == nil {
		t.Errorf("%+v %v", measurement, err)
	}
}

func TestNothingOfAnotherDocumentIsDecoded(t *testing.T) {
	const text = `{"name":"web"}`
	for name, change := range map[string]func(directory string) string{
		"another byte": func(directory string) string {
			write(t, filepath.Join(directory, "a.json"), text+"\n")
			return "a.json"
		},
		"no JSON": func(directory string) string {
			write(t, filepath.Join(directory, "a.json"), "{")
			return "a.json"
		},
		"another name": func(directory string) string {
			write(t, filepath.Join(directory, "b.json"), text)
			return "b.json"
		},
		"no measurement": func(directory string) string {
			write(t, filepath.Join(directory, "a.json"), text)
			if err := os.Remove(Path(FileName)); err != nil {
				t.Fatal(err)
			}
			return "a.json"
		},
		"a measurement of another release": func(directory string) string {
			write(t, filepath.Join(directory, "a.json"), text)
			write(t, Path(FileName), `{"version":"cloister.dev/measurement/v1"}`)
			return "a.json"
		},
		"no digest": func(directory string) string {
			write(t, filepath.Join(directory, "a.json"), text)
			write(t, Path(FileName), fmt.Sprintf(`{"version":%q,"documents":{"a.json":"sha256:0"}}`, Version))
			return "a.json"
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := installed(t, "a.json", text)
			path := filepath.Join(directory, change(directory))
			if _, err := Read[document](path); !errors.Is(err, ErrNotMeasured) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAnInvalidDocumentIsRefusedThoughItIsMeasured(t *testing.T) {
	path := filepath.Join(installed(t, "a.json", `{}`), "a.json")
	write(t, path, `{}`)
	if _, err := Read[document](path); err == nil || errors.Is(err, ErrNotMeasured) || !strings.Contains(err.Error(), "name: is missing") {
		t.Errorf("got %v", err)
	}
}
