package verify

import (
	"fmt"

	"cloister.dev/guest/internal/evidence/initdata"
)

// policyFile is the file of the initdata with the rules, and the containers of the Pod at its end.
const policyFile = "policy.rego"

// checkInitdata compares the initdata, file by file, with the measurement: a host could start the
// machine with rules of its own, or for another Pod, in addition to the honest measurement.
func checkInitdata(text []byte, measurement string, enclave Measured, algorithm string) error {
	digests := enclave.Host.Initdata
	read, err := initdata.Parse(text)
	if err != nil {
		return err
	}
	if read.Algorithm != algorithm {
		return fmt.Errorf("its algorithm is %q, not %s", read.Algorithm, algorithm)
	}
	if read.Data[initdata.MeasurementFile] != measurement {
		return fmt.Errorf("its %s is not the measurement of this enclave", initdata.MeasurementFile)
	}
	delete(read.Data, initdata.MeasurementFile)
	for name, content := range read.Data {
		if name == policyFile {
			rules, pod, err := splitPolicy(content)
			if err != nil {
				return fmt.Errorf("its %s: %w", name, err)
			}
			if digest := digestOf(pod); enclave.Documents[podDocument] != digest {
				return fmt.Errorf("its %s is for another Pod: %s, the measurement has %q", name, digest, enclave.Documents[podDocument])
			}
			content = rules
		}
		if digest := digestOf(content); digests[name] != digest {
			return fmt.Errorf("its file %q has the digest %s, the measurement has %q", name, digest, digests[name])
		}
	}
	if len(read.Data) != len(digests) {
		return fmt.Errorf("it has %d files in addition to the measurement, which lists %d", len(read.Data), len(digests))
	}
	return nil
}
