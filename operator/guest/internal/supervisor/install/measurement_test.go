package install

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-sev-guest/abi"

	"cloister.dev/guest/internal/evidence/teetest"
	"cloister.dev/guest/internal/foundation/measured"
)

const honest = `{"documents":{},"host":{"tee":"SNP","teeUnit":"Pod"},"version":"` + measured.Version + `"}`

// initdataOf writes initdata as the operator does: docs/measurement.md.
func initdataOf(measurement string) string {
	return "version = \"0.1.0\"\nalgorithm = \"sha256\"\n\n[data]\n\"measurement.json\" = '''\n" + measurement + "'''\n"
}

// processor is a fake of the attestation service of a machine that was started with some initdata.
func processor(t *testing.T, initdata string) string {
	t.Helper()
	hostData := sha256.Sum256([]byte(initdata))
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		reportData, err := base64.RawURLEncoding.DecodeString(request.URL.Query().Get("runtime_data"))
		if err != nil {
			writer.WriteHeader(http.StatusBadRequest)
			return
		}
		raw := make([]byte, abi.ReportSize)
		copy(raw[0x50:], reportData)
		copy(raw[0xC0:], hostData[:])
		evidence, _ := teetest.ComponentsSNP(raw, nil)
		_, _ = writer.Write(evidence)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// publish is what the host carries to the enclave.
func publish(t *testing.T, directory string, files map[string]string) {
	t.Helper()
	for name := range files {
		if err := os.WriteFile(published(directory, name), []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// guestDirectory returns a directory such as the guest's.
func guestDirectory(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, measured.PublishedName), 0o755); err != nil {
		t.Fatal(err)
	}
	return directory
}

func TestTheMeasurementOfTheReportedInitdataIsInstalled(t *testing.T) {
	directory := guestDirectory(t)
	publish(t, directory, map[string]string{measured.FileName: honest, measured.InitdataName: initdataOf(honest)})
	for range 2 { // the second is a restart of `guest keep`
		if err := installMeasurement(t.Context(), directory, processor(t, initdataOf(honest))); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{measured.FileName: honest, measured.InitdataName: initdataOf(honest)} {
		content, err := os.ReadFile(filepath.Join(directory, name))
		about, errStat := os.Stat(filepath.Join(directory, name))
		if errors.Join(err, errStat) != nil || string(content) != want || about.Mode().Perm() != readable {
			t.Errorf("%s: %s %v", name, content, errors.Join(err, errStat))
		}
	}
}

func TestWithoutATEEThePublishedMeasurementIsInstalled(t *testing.T) {
	for _, unit := range []string{`{"tee":"None"}`, `{"tee":"TDX","teeUnit":"Node"}`} {
		directory := guestDirectory(t)
		publish(t, directory, map[string]string{measured.FileName: fmt.Sprintf(`{"version":%q,"host":%s}`, measured.Version, unit)})
		if err := installMeasurement(t.Context(), directory, NoEvidence); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(directory, measured.InitdataName)); err == nil {
			t.Error("there is initdata that nothing measures")
		}
	}
}

// Attacks of a host that carries other files than those that the machine was started with.
func TestAHostThatChangesTheMeasurementFailsTheBoot(t *testing.T) {
	other := strings.Replace(honest, `{}`, `{"agent.json":"sha256:`+strings.Repeat("0", 64)+`"}`, 1)
	unmeasured := strings.Replace(honest, `"Pod"`, `"Node"`, 1)
	file := "\"measurement.json\" = '''\n" + other + "'''\n"
	inAnother := strings.Replace(file, "measurement.json", "x", 1)
	for name, each := range map[string]struct {
		measurement, initdata string
		reported              string
		reason                string
	}{
		"another measurement":                {other, initdataOf(honest), initdataOf(honest), "measurement.json has the digest"},
		"another measurement and initdata":   {other, initdataOf(other), initdataOf(honest), "started with other initdata"},
		"initdata with a line more":          {honest, initdataOf(honest) + "\n", initdataOf(honest), "in the form that the operator writes"},
		"the other one in a comment":         {other, initdataOf(honest) + "# " + other + "\n", initdataOf(honest) + "# " + other + "\n", "in the form that the operator writes"},
		"the other one in another table":     {other, initdataOf(honest) + "[Data]\n" + file, initdataOf(honest) + "[Data]\n" + file, "in the form that the operator writes"},
		"the other one in another file":      {other, initdataOf(honest) + inAnother, initdataOf(honest) + inAnother, "measurement.json has the digest"},
		"initdata without measurement":       {honest, strings.Replace(initdataOf(honest), "measurement.json", "x", 1), strings.Replace(initdataOf(honest), "measurement.json", "x", 1), "it has no measurement.json"},
		"no initdata":                        {honest, "", "", "it is of version"},
		"the measurement of a measured node": {unmeasured, initdataOf(unmeasured), initdataOf(honest), `host.teeUnit "Node"`},
		"the measurement of another release": {strings.Replace(honest, "/v2", "/v1", 1), initdataOf(honest), initdataOf(honest), "different releases"},
		"a measurement that is not JSON":     {"{", initdataOf(honest), initdataOf(honest), "measurement.json"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := guestDirectory(t)
			publish(t, directory, map[string]string{measured.FileName: each.measurement, measured.InitdataName: each.initdata})
			err := installMeasurement(t.Context(), directory, processor(t, each.reported))
			if !errors.Is(err, measured.ErrNotMeasured) || !strings.Contains(err.Error(), each.reason) {
				t.Errorf("got %v, want %q", err, each.reason)
			}
			if _, err := os.Stat(filepath.Join(directory, measured.FileName)); err == nil {
				t.Error("a measurement was installed")
			}
		})
	}
}

func TestEvidenceFitsTheHost(t *testing.T) {
	for host, evidence := range map[string]string{
		`{"tee":"None"}`:                         "http://127.0.0.1:8006",
		`{"tee":"TDX","teeUnit":"Node"}`:         "http://127.0.0.1:8006",
		`{"tee":"SNP","teeUnit":"Pod","gpus":0}`: NoEvidence,
	} {
		directory := guestDirectory(t)
		publish(t, directory, map[string]string{measured.FileName: fmt.Sprintf(`{"version":%q,"host":%s}`, measured.Version, host)})
		err := installMeasurement(t.Context(), directory, evidence)
		if !errors.Is(err, measured.ErrNotMeasured) || !strings.Contains(err.Error(), "does not fit a machine with evidence") {
			t.Errorf("%s with %s: %v", host, evidence, err)
		}
	}
}

func TestAMachineIsNotTakenForOneWithoutTEE(t *testing.T) {
	directory := guestDirectory(t)
	publish(t, directory, map[string]string{measured.FileName: honest})
	if err := installMeasurement(t.Context(), directory, NoEvidence); !errors.Is(err, measured.ErrNotMeasured) {
		t.Errorf("got %v", err)
	}
	if err := installMeasurement(t.Context(), directory, processor(t, "")); !errors.Is(err, measured.ErrNotMeasured) {
		t.Errorf("without initdata: %v", err)
	}
}

func TestTheHookWaitsForTheMeasurement(t *testing.T) {
	directory := t.TempDir()
	done := make(chan error, 1)
	go func() { done <- awaitMeasurement(directory) }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if err := os.WriteFile(filepath.Join(directory, measured.FileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
