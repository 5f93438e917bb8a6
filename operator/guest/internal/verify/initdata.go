package verify

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"cloister.dev/guest/internal/initdata"
)

// policyFile is the file of the initdata that has the measurement at its end.
const policyFile = "policy.rego"

// checkInitdata compares the initdata, file by file, with the measurement: a host could start the
// machine with rules of its own beside the honest measurement.
func checkInitdata(text []byte, measurement string, digests map[string]string) error {
	read, err := initdata.Parse(text)
	if err != nil {
		return err
	}
	if read.Algorithm != "sha256" {
		return fmt.Errorf("its algorithm is %q, not sha256", read.Algorithm)
	}
	if read.Data[initdata.MeasurementFile] != measurement {
		return fmt.Errorf("its %s is not the measurement of this enclave", initdata.MeasurementFile)
	}
	delete(read.Data, initdata.MeasurementFile)
	for name, content := range read.Data {
		if name == policyFile {
			rules, found := strings.CutSuffix(content, "\ncloister_measurement := "+measurement+"\n")
			if !found {
				return fmt.Errorf("its %s does not end with the measurement of this enclave", name)
			}
			content = rules
		}
		if digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))); digests[name] != digest {
			return fmt.Errorf("its file %q has the digest %s, the measurement says %q", name, digest, digests[name])
		}
	}
	if len(read.Data) != len(digests) {
		return fmt.Errorf("it has %d files beside the measurement, which lists %d", len(read.Data), len(digests))
	}
	return nil
}
