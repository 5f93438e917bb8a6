// Package testtpm starts swtpm, a TPM 2.0 in software, for tests. Only tests import it.
package testtpm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"
	"github.com/google/go-tpm/tpm2"
	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/enrol"
)

const patience = 20 * time.Second

// eventNoAction is the type of events that no register is extended by.
const eventNoAction = 0x00000003

// TPM is a running swtpm, whose attestation key is certified.
type TPM struct {
	// Address is that of the TPM.
	Address string
	// Authorities are the certificates of the local authority that certified it, in PEM.
	Authorities []byte
	// Authority is that authority.
	Authority enrol.Authority
}

// Start manufactures a TPM with a local authority of its own and starts it. It skips the test where the
// programs are missing.
func Start(t *testing.T) TPM {
	t.Helper()
	for _, program := range []string{"swtpm", "swtpm_setup", "swtpm_localca"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s: apt-get install swtpm swtpm-tools", program)
		}
	}
	directory, err := os.MkdirTemp("", "tpm-") // t.TempDir's paths are too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	authority := manufacture(t, directory)
	socket := filepath.Join(directory, "tpm.sock")
	process := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+filepath.Join(directory, "state"),
		"--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
	must(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Signal(unix.SIGTERM)
		_ = process.Wait()
	})
	made := TPM{Address: "tpm+unix://" + socket, Authority: authority}
	await(t, func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	made.enrol(t)
	for _, name := range []string{"swtpm-localca-rootca-cert.pem", "issuercert.pem"} {
		text, err := os.ReadFile(filepath.Join(directory, "ca", name))
		must(t, err)
		made.Authorities = append(made.Authorities, text...)
	}
	return made
}

// manufacture writes the state of a new TPM, with certificates of a new local authority.
func manufacture(t *testing.T, directory string) enrol.Authority {
	t.Helper()
	authority, state := filepath.Join(directory, "ca"), filepath.Join(directory, "state")
	must(t, errors.Join(os.Mkdir(authority, 0o700), os.Mkdir(state, 0o700)))
	files := map[string]string{
		"localca.conf":    fmt.Sprintf("statedir = %[1]s\nsigningkey = %[1]s/signkey.pem\nissuercert = %[1]s/issuercert.pem\ncertserial = %[1]s/certserial\n", authority),
		"localca.options": "--platform-manufacturer QEMU\n--platform-version 1\n--platform-model test\n",
		"setup.conf":      fmt.Sprintf("create_certs_tool = swtpm_localca\ncreate_certs_tool_config = %[1]s/localca.conf\ncreate_certs_tool_options = %[1]s/localca.options\n", authority),
	}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(authority, name), []byte(text), 0o600))
	}
	setup := exec.Command("swtpm_setup", "--tpm2", "--tpmstate", state, "--create-ek-cert", "--pcr-banks", "sha256", "--config", filepath.Join(authority, "setup.conf"))
	if output, err := setup.CombinedOutput(); err != nil {
		t.Fatalf("swtpm_setup: %v\n%s", err, output)
	}
	var parts [][]byte
	for _, name := range []string{"swtpm-localca-rootca-cert.pem", "issuercert.pem", "signkey.pem"} {
		text, err := os.ReadFile(filepath.Join(authority, name))
		must(t, err)
		parts = append(parts, text)
	}
	read, err := enrol.ReadAuthority(parts[0], parts[1], parts[2])
	must(t, err)
	return read
}

func (p TPM) enrol(t *testing.T) {
	t.Helper()
	machine, err := measuredboot.Open(p.Address)
	must(t, err)
	defer machine.Close()
	must(t, p.Authority.Enrol(machine, time.Now()))
}

// Extend extends the registers as firmware does that writes an event log.
func (p TPM) Extend(t *testing.T, log []byte) {
	t.Helper()
	machine, err := measuredboot.Open(p.Address)
	must(t, err)
	defer machine.Close()
	parsed, err := tcg.ParseEventLog(log, tcg.ParseOpts{})
	must(t, err)
	for _, event := range parsed.Events(register.HashSHA256) {
		if event.Type == eventNoAction {
			continue
		}
		_, err := tpm2.PCRExtend{
			PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(event.Index), Auth: tpm2.PasswordAuth(nil)},
			Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: event.Digest}}},
		}.Execute(machine)
		must(t, err)
	}
}

func await(t *testing.T, isThere func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = isThere(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
