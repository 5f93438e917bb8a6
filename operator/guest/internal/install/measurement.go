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

	"cloister.dev/guest/internal/attestation"
	"cloister.dev/guest/internal/initdata"
	"cloister.dev/guest/internal/measured"
	"cloister.dev/guest/internal/measuredboot/commandline"
)

// NoEvidence means that nothing measures the enclave: the published measurement counts as it is.
const NoEvidence = "none"

// MeasuredBoot means that the machine's TPM measured the command line of its kernel, which names the
// measurement.
const MeasuredBoot = "measured-boot"

// commandLineFile is where the kernel shows its command line.
const commandLineFile = "/proc/cmdline"

const (
	evidenceTimeout = time.Minute
	evidencePause   = time.Second
	awaitTimeout    = 2 * evidenceTimeout
	awaitPause      = 10 * time.Millisecond
)

// Measurement installs the measurement by which all other parts of the guest work.
//
// From the attestation service at an address it takes evidence, and from the published initdata the
// measurement, if the processor reports that initdata's digest. With MeasuredBoot the published
// measurement is installed if the kernel's command line names its digest. With NoEvidence there is no
// processor to ask, and the published measurement is installed.
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
	if wanted := evidenceOf(measurement.Host); wanted != evidence && (wanted != "" || evidence == NoEvidence || evidence == MeasuredBoot) {
		return fmt.Errorf("%w: %s has host.teeUnit %q and host.measuredBoot %t, which do not fit a machine with evidence %q",
			measured.ErrNotMeasured, measured.FileName, measurement.Host.TEEUnit, measurement.Host.MeasuredBoot, evidence)
	}
	if evidence == MeasuredBoot {
		err = checkCommandLine(commandLineFile, measurement)
	}
	if err != nil {
		return err
	}
	if evidence == NoEvidence || evidence == MeasuredBoot {
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

// evidenceOf returns which evidence machines of a Host have; empty means that of an attestation service.
func evidenceOf(host measured.Host) string {
	switch {
	case host.TEEUnit == "Pod":
		return ""
	case host.MeasuredBoot:
		return MeasuredBoot
	}
	return NoEvidence
}

// checkCommandLine returns an error unless the command line, which the TPM has measured, names the
// measurement.
func checkCommandLine(path string, measurement measured.Measurement) error {
	line, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: %w", measured.ErrNotMeasured, err)
	}
	named := commandline.Measurement(string(line))
	if found := fmt.Sprintf("sha256:%x", measurement.Digest()); named != found {
		return fmt.Errorf("%w: %s has the digest %s, the kernel was started with %s=%s: the machine was started for another enclave",
			measured.ErrNotMeasured, measured.FileName, found, commandline.Parameter, named)
	}
	return nil
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

// awaitMeasurement waits until Measurement has installed one; why it does not, its own log says.
func awaitMeasurement(directory string) error {
	path := filepath.Join(directory, measured.FileName)
	for deadline := time.Now().Add(awaitTimeout); time.Now().Before(deadline); time.Sleep(awaitPause) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no measurement was installed within %s; the log of `guest keep` says why", awaitTimeout)
}

func published(directory, name string) string {
	return filepath.Join(directory, measured.PublishedName, name)
}

// write writes a file of the guest's directory, which everybody may read.
func write(directory, name string, content []byte) error {
	return place(bytes.NewReader(content), filepath.Join(directory, name), readable)
}
