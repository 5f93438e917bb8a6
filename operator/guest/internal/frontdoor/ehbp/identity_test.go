package ehbp

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
)

const valid = `{"version":1,"directory":"/run/a","keyDirectory":"/run/b","upstream":"10.0.0.2:8000","required":true}`

func TestSpecs(t *testing.T) {
	if spec, err := strictjson.Parse[Spec]([]byte(valid)); err != nil || !spec.Required || spec.Upstream.String() != "10.0.0.2:8000" {
		t.Errorf("%+v %v", spec, err)
	}
	for _, each := range [][3]string{
		{`"version":1`, `"version":2`, "version"}, {"/run/a", "run/a", "directory"}, {"/run/b", "", "keyDirectory"},
		{"/run/b", "/run/a/", "keyDirectory"}, {"10.0.0.2:8000", "10.0.0.2:0", "upstream"}, {"10.0.0.2:8000", "web:80", "web"},
		{`"required":true`, `"required":"yes"`, "required"}, {`{"version"`, `{"more":1,"version"`, "more"},
	} {
		if _, err := strictjson.Parse[Spec]([]byte(strings.Replace(valid, each[0], each[1], 1))); err == nil || !strings.Contains(err.Error(), each[2]) {
			t.Errorf("%s: %v", each[1], err)
		}
	}
}

func TestTheKeyStaysTheSame(t *testing.T) {
	spec := Spec{Directory: t.TempDir(), KeyDirectory: t.TempDir()}
	first, err := openIdentity(spec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openIdentity(spec)
	if err != nil || !bytes.Equal(first.public(), again.public()) {
		t.Errorf("%x %x %v", first.public(), again.public(), err)
	}
	published, err := os.ReadFile(filepath.Join(spec.Directory, publicKeyFile))
	if err != nil || string(published) != hex.EncodeToString(first.public())+"\n" {
		t.Errorf("%q %v", published, err)
	}
	file := filepath.Join(spec.KeyDirectory, privateKeyFile)
	if about, err := os.Stat(file); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", about, err)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openIdentity(spec); err == nil {
		t.Error("a damaged key is used")
	}
}

func TestTheKeyConfiguration(t *testing.T) {
	served := run(t, true, echo)
	public := served.server.identity.public()
	want := "000020" + hex.EncodeToString(public) + "0004" + "0001" + "0002"
	for method, status := range map[string]int{http.MethodGet: http.StatusOK, http.MethodHead: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed} {
		request, err := http.NewRequestWithContext(t.Context(), method, served.url+keysPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		response := served.do(t, request)
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status {
			t.Errorf("%s: %s %v", method, response.Status, err)
		}
		if status == http.StatusOK && response.Header.Get("Content-Type") != keysType {
			t.Errorf("%s: %v", method, response.Header)
		}
		if method == http.MethodGet && hex.EncodeToString(text) != want {
			t.Errorf("%x", text)
		}
	}
}
