package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/evidence/initdata"
	"cloister.dev/guest/internal/foundation/measured"
)

// NoEvidence means that nothing measures the enclave: the published measurement counts as it is.
const NoEvidence = "none"

const (
	evidenceTimeout = time.Minute
	evidencePause   = time.Second
	awaitTimeout    = 2 * evidenceTimeout
	awaitPause      = 10 * time.Millisecond
)

// Measurement installs the measurement by which all other parts of the guest work.
//
// From the attestation service at an address it takes evidence, and from the published initdata the
// measurement, if the processor reports that initdata's digest. With NoEvidence
// there is no processor to ask, and the published measurement is installed.
func Measurement(ctx context.Context, evidence string) error {
	return installMeasurement(ctx, measured.Root(), evidence)
}

func installMeasurement(ctx context.Context, directory, evidence string) error {
	text, err := os.ReadFile(published(directory, measured.FileName))
	if err != nil {
		return fmt.Errorf("%w: %w", measured.ErrNotMeasured, err)
	}
	measurement, err := measured.Parse(text)
	if err != nil {
		return err
	}
	if (measurement.Host.TEEUnit == "Pod") != (evidence != NoEvidence) {
		return fmt.Errorf("%w: %s has host.teeUnit %q, which does not fit a machine with evidence %q",
			measured.ErrNotMeasured, measured.FileName, measurement.Host.TEEUnit, evidence)
	}
	if evidence == NoEvidence {
		return write(directory, measured.FileName, text)
	}
	found, err := os.ReadFile(published(directory, measured.InitdataName))
	if err != nil {
		return fmt.Errorf("%w: %w", measured.ErrNotMeasured, err)
	}
	reported, err := hostData(ctx, measurement.Host.TEE, evidence)
	if err != nil {
		return err
	}
	if err := checkInitdata(found, text, reported); err != nil {
		return err
	}
	return errors.Join(write(directory, measured.InitdataName, found), write(directory, measured.FileName, text))
}

// checkInitdata returns an error unless the processor reports the initdata and this has the
// measurement.
func checkInitdata(text, measurement, reported []byte) error {
	document, err := initdata.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", measured.ErrNotMeasured, measured.InitdataName, err)
	}
	digest, err := initdata.Digest(document.Algorithm, text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", measured.ErrNotMeasured, measured.InitdataName, err)
	}
	if !bytes.Equal(digest, reported) {
		return fmt.Errorf("%w: %s has the digest %x, and the processor reports %x: the machine was started with other initdata",
			measured.ErrNotMeasured, measured.InitdataName, digest, reported)
	}
	named, err := document.Measurement()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", measured.ErrNotMeasured, measured.InitdataName, err)
	}
	if named != string(measurement) {
		return fmt.Errorf("%w: %s has the digest sha256:%x, that in the initdata sha256:%x",
			measured.ErrNotMeasured, measured.FileName, sha256.Sum256(measurement), sha256.Sum256([]byte(named)))
	}
	return nil
}

// hostData asks until the attestation service responds: it may start later than the Pod.
func hostData(ctx context.Context, tee, service string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	for {
		reported, err := attestation.HostData(ctx, tee, service)
		if err == nil {
			return reported, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no evidence within %s: %w", measured.ErrNotMeasured, evidenceTimeout, err)
		case <-time.After(evidencePause):
		}
	}
}

// awaitMeasurement waits until Measurement has installed one; its log has the reason if it does not.
func awaitMeasurement(directory string) error {
	path := filepath.Join(directory, measured.FileName)
	for deadline := time.Now().Add(awaitTimeout); time.Now().Before(deadline); time.Sleep(awaitPause) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no measurement was installed within %s; see the log of `guest keep`", awaitTimeout)
}

func published(directory, name string) string {
	return filepath.Join(directory, measured.PublishedName, name)
}

// write writes a file of the guest's directory, which all users may read.
func write(directory, name string, content []byte) error {
	return place(bytes.NewReader(content), filepath.Join(directory, name), readable)
}
