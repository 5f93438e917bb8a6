package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/bootverify"
	"cloister.dev/guest/internal/bundle"
	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/verify"
)

// bootFile returns a file that `python -m dev.measured_boot --record` wrote: a TPM signs otherwise each
// time, so these vectors are from one recorded boot.
func bootFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "measuredboot", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// bootBase is the base of the recorded boot.
func (m *maker) bootBase() base {
	m.t.Helper()
	document, parts := bootFile(m.t, "document.json"), m.bootParts()
	at, err := time.Parse(time.RFC3339, string(bootFile(m.t, "recorded-at")))
	if err != nil {
		m.t.Fatal(err)
	}
	nonce := hex.EncodeToString(parts.Nonce)
	return base{
		bundle.Bundle{
			Format: bundle.Format, Time: at, Host: "web.acme.example.com", Service: "cloister",
			Certificate: bootFile(m.t, "certificate.der"), Nonce: nonce, Document: document,
		},
		client{
			Nonce: nonce, SPKI: parts.Keys.TLSSPKI, Measurement: digestOf(string(parts.Measurement)), Time: at.Format(time.RFC3339),
			Platform: []string{}, BootPlatform: bootFile(m.t, "platform.json"),
		},
	}
}

func (m *maker) bootParts() attestdoc.Parts {
	m.t.Helper()
	parts, err := attestdoc.Parse(bootFile(m.t, "document.json"))
	if err != nil {
		m.t.Fatal(err)
	}
	return parts
}

// trustedBoot returns what a client trusts of machines with a measured boot.
func (m *maker) trustedBoot(known client) *verify.MeasuredBoot {
	m.t.Helper()
	if len(known.BootPlatform) == 0 || string(known.BootPlatform) == "{}" {
		return nil
	}
	platform, first := bootverify.ReadPlatform(known.BootPlatform)
	authorities, second := bootverify.ReadAuthorities(bootFile(m.t, "authorities.pem"))
	if first != nil || second != nil {
		m.t.Fatal(first, second)
	}
	return &verify.MeasuredBoot{Platform: platform, InsecureAuthorities: authorities}
}

// boots are vectors of a measured boot: what the client expects otherwise, and damaged evidence.
func (m *maker) boots(bases map[string]base) []vector {
	m.t.Helper()
	zeros := strings.Repeat("0", 2*sha256.Size)
	made := []vector{
		{Name: "boot", About: "an honest machine with a measured boot, which is not confidential", Base: boot, Verdict: verdict{Code: verify.ClassMeasuredBoot}},
		m.bootClient("no platform", "the client checks no measured boot", client{BootPlatform: json.RawMessage("{}")}, verify.ClassNotConfidential),
		m.bootClient("another nonce", "the client sent another nonce", client{Nonce: strings.Repeat("0a", attestdoc.NonceSize)}, verify.ClassFreshness),
		m.bootClient("another measurement", "the client computed another measurement", client{Measurement: "sha256:" + zeros}, verify.ClassMeasurement),
		m.bootClient("another key", "the connection has another key", client{SPKI: hex.EncodeToString(spkiOf(m.foreign)), Certificate: m.foreign.Raw}, verify.ClassKey),
		m.bootClient("later", "the TPM's certificate has expired", client{Time: bases[boot].bundle.Time.AddDate(1, 0, 0).Format(time.RFC3339)}, verify.ClassSignature),
		m.bootPlatform("another kernel", "kernel", func(platform *bootverify.Platform) { platform.Kernel = zeros }, verify.ClassLaunch),
		m.bootPlatform("another initial file system", "initrd", func(platform *bootverify.Platform) { platform.Initrd = zeros }, verify.ClassLaunch),
		m.bootPlatform("another firmware", "register 0", func(platform *bootverify.Platform) { platform.Registers["0"] = zeros }, verify.ClassLaunch),
		m.bootPlatform("other settings of the firmware", "register 7", func(platform *bootverify.Platform) { platform.Registers["7"] = zeros }, verify.ClassLaunch),
		m.bootPlatform("another command line", "command_line", func(platform *bootverify.Platform) { platform.CommandLine += " debug" }, verify.ClassMeasurement),
	}
	for _, each := range []struct {
		name, about string
		change      func(*measuredboot.Evidence)
		code        verify.Class
	}{
		{"certificate", "the last byte of the certificate is another one", func(e *measuredboot.Evidence) { flipLast(e.Certificate) }, verify.ClassSignature},
		{"signature", "the last byte of the signature is another one", func(e *measuredboot.Evidence) { flipLast(e.Signature) }, verify.ClassSignature},
		{"quote", "the last byte of the quote is another one", func(e *measuredboot.Evidence) { flipLast(e.Quote) }, verify.ClassSignature},
		{"register", "register 9 is zero", func(e *measuredboot.Evidence) { e.Registers[9] = zeros }, verify.ClassSignature},
		{"register missing", "register 9 is not there", func(e *measuredboot.Evidence) { e.Registers = e.Registers[:9] }, verify.ClassDocument},
		{"event log cut", "the last byte of the event log is missing", func(e *measuredboot.Evidence) { e.EventLog = e.EventLog[:len(e.EventLog)-1] }, verify.ClassLaunch},
		{"event log edited", "the event log has the digest of another command line", m.anotherCommandLine, verify.ClassLaunch},
	} {
		evidence, err := measuredboot.Parse(m.bootParts().Report)
		if err != nil {
			m.t.Fatal(err)
		}
		each.change(&evidence)
		report := base64.StdEncoding.EncodeToString(evidence.Bytes())
		made = append(made, vector{
			Name: "boot evidence: " + each.name, About: each.about, Base: boot,
			Set: []edit{{"/cpu_evidence/report_base64", marshal(m.t, report)}}, Verdict: verdict{Code: each.code},
		})
	}
	return append(made, m.bootOfAnotherDocument(bases))
}

func (m *maker) bootClient(name, about string, known client, code verify.Class) vector {
	return vector{Name: "boot " + name, About: about, Base: boot, Client: &known, Verdict: verdict{Code: code}}
}

func (m *maker) bootPlatform(name, field string, change func(*bootverify.Platform), code verify.Class) vector {
	m.t.Helper()
	platform, err := bootverify.ReadPlatform(bootFile(m.t, "platform.json"))
	if err != nil {
		m.t.Fatal(err)
	}
	change(&platform)
	return m.bootClient(name, "the client trusts another machine: "+field, client{BootPlatform: marshal(m.t, platform)}, code)
}

// bootOfAnotherDocument is a quote beside another measurement, of which the document says the digests
// and which the client expects.
func (m *maker) bootOfAnotherDocument(bases map[string]base) vector {
	m.t.Helper()
	parts := m.bootParts()
	measurement := bytes.Replace(parts.Measurement, []byte(`"networkIsolation":"Pod"`), []byte(`"networkIsolation":"Container"`), 1)
	claim := attestdoc.Claim{Nonce: parts.Nonce, Keys: parts.Keys, Measurement: measurement}
	document, err := claim.Document(parts.CPUFormat, parts.Report, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	return vector{
		Name: "boot quote beside another measurement", About: "the document is for another measurement, which the client expects", Base: boot,
		Set:    difference(m.t, bases[boot].bundle.Document, marshal(m.t, document)),
		Client: &client{Measurement: digestOf(string(measurement))}, Verdict: verdict{Code: verify.ClassFreshness},
	}
}

// anotherCommandLine edits the last event of register 9 but one, as a host does that hides what it started.
func (m *maker) anotherCommandLine(evidence *measuredboot.Evidence) {
	m.t.Helper()
	label := bytes.Index(evidence.EventLog, []byte("LOADED_IMAGE::LoadOptions"))
	if label < 64 {
		m.t.Fatal("the event log has no command line")
	}
	// The digest ends before the sizes of event and tag and the tag's number, 4 bytes each.
	evidence.EventLog[label-13] ^= 1
}

func flipLast(content []byte) { content[len(content)-1] ^= 1 }
