package verify

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/bootverify"
)

func bootFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "measuredboot", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// bootScene is the document of the machine of `python -m dev.measured_boot`, and what a verifier that trusts it expects.
func bootScene(t *testing.T) ([]byte, Expected) {
	t.Helper()
	document := bootFile(t, "document.json")
	parts, err := attestdoc.Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	platform, err := bootverify.ReadPlatform(bootFile(t, "platform.json"))
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := bootverify.ReadAuthorities(bootFile(t, "authorities.pem"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, string(bootFile(t, "recorded-at")))
	if err != nil {
		t.Fatal(err)
	}
	return document, Expected{
		Key: parts.TLSSPKI, Nonce: parts.Nonce, Measurement: sha256.Sum256(parts.Measurement), Now: at,
		MeasuredBoot: &MeasuredBoot{Platform: platform, InsecureAuthorities: authorities},
	}
}

// documentWith is the document with another measurement, of which it says the digests itself.
func documentWith(t *testing.T, document []byte, change func(host map[string]any)) ([]byte, [32]byte) {
	t.Helper()
	parts, err := attestdoc.Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(parts.Measurement, &fields); err != nil {
		t.Fatal(err)
	}
	change(fields["host"].(map[string]any))
	measurement, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	claim := attestdoc.Claim{Nonce: parts.Nonce, Keys: parts.Keys, Measurement: measurement}
	made, err := claim.Document(parts.CPUFormat, parts.Report, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	return text, sha256.Sum256(measurement)
}

func TestMeasuredBoot(t *testing.T) {
	for name, test := range map[string]struct {
		class  Class
		change func(want *Expected)
	}{
		"verified":            {ClassMeasuredBoot, func(*Expected) {}},
		"nothing is trusted":  {ClassNotConfidential, func(want *Expected) { want.MeasuredBoot = nil }},
		"another nonce":       {ClassFreshness, func(want *Expected) { want.Nonce = make([]byte, 32) }},
		"another measurement": {ClassMeasurement, func(want *Expected) { want.Measurement[0]++ }},
		"another key":         {ClassKey, func(want *Expected) { want.Key[0]++ }},
		"another root":        {ClassSignature, func(want *Expected) { want.MeasuredBoot.InsecureAuthorities = bootverify.Authorities{} }},
		"another kernel":      {ClassLaunch, func(want *Expected) { want.MeasuredBoot.Platform.Kernel = want.MeasuredBoot.Platform.Initrd }},
		"another firmware":    {ClassLaunch, func(want *Expected) { want.MeasuredBoot.Platform.Registers["0"] = want.MeasuredBoot.Platform.Initrd }},
		"another initrd":      {ClassLaunch, func(want *Expected) { want.MeasuredBoot.Platform.Initrd = want.MeasuredBoot.Platform.Kernel }},
		"another command":     {ClassMeasurement, func(want *Expected) { want.MeasuredBoot.Platform.CommandLine += " debug" }},
		"another boot":        {ClassFreshness, func(want *Expected) { want.MeasuredBoot.Since = &bootverify.Counters{Resets: 99} }},
		"expired":             {ClassSignature, func(want *Expected) { want.Now = want.Now.AddDate(1, 0, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			document, want := bootScene(t)
			test.change(&want)
			refused(t, Check(document, want), test.class)
		})
	}
}

// The quote binds the report data, which a changed document has not; so a host that changes both the
// document and what the client expects is still refused.
func TestMeasuredBootOfAnotherDocument(t *testing.T) {
	document, want := bootScene(t)
	changed, digest := documentWith(t, document, func(host map[string]any) { host["networkIsolation"] = "Container" })
	want.Measurement = digest
	refused(t, Check(changed, want), ClassFreshness)
	changed, digest = documentWith(t, document, func(host map[string]any) { delete(host, "measuredBoot") })
	want.Measurement = digest
	refused(t, Check(changed, want), ClassMeasurement)
}
