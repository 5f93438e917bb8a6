package shim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
)

const caddy = `{"apps":{"http":{"servers":{"shim":{"tls_connection_policies":[{}]}}},"tls":{"certificates":{},"automation":{"policies":[{}],"x":0.3}}}}`

// The files are what the operator writes: a unit test of its builders compares them.
func TestTheConfigurationOfTheOperatorIsCompleted(t *testing.T) {
	data := filepath.Join("..", "..", "..", "..", "..", "tests", "data", "measurement")
	for _, kind := range []string{"signed", "self-signed"} {
		config, err := strictjson.DecodeFile[Config](filepath.Join(data, "shim-"+kind+".json"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(data, "shim-"+kind+"-with-names.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := config.Validate(); err != nil || config.Signed != (kind == "signed") {
			t.Errorf("%s: %t %v", kind, config.Signed, err)
		}
		got, err := withHostnames(config.Caddy, []string{"www.example.org", "web.acme.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		var found, expected any
		if err := json.Unmarshal(got, &found); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(want, &expected); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(found, expected) {
			t.Errorf("%s: got %s", kind, got)
		}
	}
}

func TestNumbersStayAsTheyAre(t *testing.T) {
	got, err := withHostnames([]byte(caddy), nil)
	if err != nil || !strings.Contains(string(got), `"x":0.3`) {
		t.Errorf("%s %v", got, err)
	}
}

func TestAConfigurationWithoutAPlaceForNamesIsRefused(t *testing.T) {
	for _, change := range [][2]string{
		{`"shim"`, `"other"`}, {`[{}]}}}`, `[{},{}]}}}`}, {`"certificates":{}`, `"certificates":[]`}, {`"policies":[{}]`, `"policies":[]`}, {`{"apps"`, `{`},
	} {
		text := strings.Replace(caddy, change[0], change[1], 1)
		if err := (Config{Version: Version, Caddy: []byte(text)}).Validate(); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
	if err := (Config{Version: 1, Caddy: []byte(caddy)}).Validate(); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("got %v", err)
	}
}
