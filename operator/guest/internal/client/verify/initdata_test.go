package verify

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"cloister.dev/guest/internal/evidence/initdata"
)

// The file is what the operator writes: a unit test of its builders compares it.
func TestInitdataOfTheOperatorIsThatOfItsMeasurement(t *testing.T) {
	text, err := os.ReadFile("../../../../../tests/data/measurement/initdata-enclave.toml")
	if err != nil {
		t.Fatal(err)
	}
	document, err := initdata.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var read Measured
	if err := json.Unmarshal([]byte(document.Data[initdata.MeasurementFile]), &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Host.Initdata) != 2 {
		t.Fatalf("the measurement lists %v", read.Host.Initdata)
	}
	if digest := read.Host.Initdata[policyFile]; !slices.Contains(publishedRules, digest) {
		t.Errorf("%s is not published", digest)
	}
	if err := checkInitdata(text, document.Data[initdata.MeasurementFile], read, "sha256"); err != nil {
		t.Error(err)
	}
}
