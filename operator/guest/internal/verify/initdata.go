package verify

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Files of the initdata that are the measurement's own, or have it at their end.
const (
	measurementFile = "measurement.json"
	policyFile      = "policy.rego"
)

// initdata is the document that the machine was started with (Trustee, kbs/docs/initdata.md).
type initdata struct {
	Version   string            `toml:"version"`
	Algorithm string            `toml:"algorithm"`
	Data      map[string]string `toml:"data"`
}

// checkInitdata compares the initdata, file by file, with the measurement: a host could start the
// machine with rules of its own beside the honest measurement.
func checkInitdata(text []byte, measurement string, digests map[string]string) error {
	var read initdata
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&read); err != nil {
		return fmt.Errorf("it is not initdata: %w", err)
	}
	if read.Version != "0.1.0" || read.Algorithm != "sha256" {
		return fmt.Errorf("it is of version %q and algorithm %q, not 0.1.0 and sha256", read.Version, read.Algorithm)
	}
	if read.Data[measurementFile] != measurement {
		return fmt.Errorf("its %s is not the measurement of this enclave", measurementFile)
	}
	delete(read.Data, measurementFile)
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
