package verify

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

// TestNothingBesideWhatIntelSignedIsRead has answers with a second reading, which nobody signed: the library
// verifies the signature of the field of the exact name, and reads the last one of any case.
func TestNothingBesideWhatIntelSignedIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		kind, field, beside string
		old                 teetest.PCS
	}{
		"levels in another case":   {attestdoc.IntelTCBInfo, "tcbInfo", "TcbInfo", teetest.PCS{Status: "OutOfDate"}},
		"levels in capitals":       {attestdoc.IntelTCBInfo, "tcbInfo", "TCBINFO", teetest.PCS{Status: "Revoked"}},
		"identity in another case": {attestdoc.IntelQEIdentity, "enclaveIdentity", "EnclaveIdentity", teetest.PCS{QEStatus: "OutOfDate"}},
		"levels given twice":       {attestdoc.IntelTCBInfo, "tcbInfo", "tcbInfo", teetest.PCS{}},
		"something more":           {attestdoc.IntelTCBInfo, "tcbInfo", "more", teetest.PCS{}},
		"signature in a long s":    {attestdoc.IntelQEIdentity, "enclaveIdentity", "\u017fignature", teetest.PCS{}},
	} {
		t.Run(name, func(t *testing.T) {
			made := newScene(t)
			made.isTDX = true
			test.old.At = made.answers.At
			forged, err := made.tdx.Collateral(made.answers)
			if err != nil {
				t.Fatal(err)
			}
			var forgedFields map[string]json.RawMessage
			if err := json.Unmarshal(forged[test.kind], &forgedFields); err != nil {
				t.Fatal(err)
			}
			value := forgedFields[test.field]
			if strings.HasSuffix(test.beside, "ignature") {
				value = forgedFields["signature"]
			}
			made.answers = test.old
			made.collateral = func(all map[string][]byte) {
				signed := bytes.TrimSuffix(bytes.TrimSpace(all[test.kind]), []byte("}"))
				all[test.kind] = append(bytes.Clone(signed), `,"`+test.beside+`":`+string(value)+`}`...)
			}
			refused(t, check(made.made(t), made.want), ClassFirmware)
		})
	}
}
