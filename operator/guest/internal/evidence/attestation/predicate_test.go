package attestation

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

func TestClientsOfTheNameGetTheirLayoutWithoutANonce(t *testing.T) {
	for name, machine := range machines {
		fake := machine()
		if fake == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			made := newEnclave(t, fake, fake.listen(t))
			made.settings.Name = PredicateService
			tlsKey, err := os.ReadFile(made.settings.Key)
			if err != nil {
				t.Fatal(err)
			}
			bound := strings.TrimSpace(string(tlsKey))
			for _, hpke := range []string{"", strings.Repeat("ab", 32)} {
				if hpke != "" {
					made.settings.HPKE = filepath.Join(made.directory, "hpke.pub")
					if err := os.WriteFile(made.settings.HPKE, []byte(hpke), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				attester := made.attester(t)
				code, response := ask(t, attester, "")
				var found map[string]string
				if err := json.Unmarshal(response, &found); err != nil || code != http.StatusOK || len(found) != 2 {
					t.Fatalf("%d %s", code, response)
				}
				report, err := unpack(found["body"])
				if err != nil {
					t.Fatal(err)
				}
				reportData, hostData, err := fields(cpuFormats[fake.tee], report)
				if want := bound + (hpke + strings.Repeat("0", 64))[:64]; err != nil || reportData != want || hostData != hex.EncodeToString(fake.hostData) {
					t.Errorf("binds %s, want %s; %v", reportData, want, err)
				}
				directory := t.TempDir()
				if err := attester.Write(t.Context(), directory); err != nil {
					t.Fatal(err)
				}
				if written, err := os.ReadFile(filepath.Join(directory, FileName)); err != nil || string(written) != string(response) {
					t.Errorf("the file differs: %v", err)
				}
			}
		})
	}
}

func TestOtherDocumentsOfTheNameAreAsEverywhere(t *testing.T) {
	snp := &standIn{tee: TEESNP}
	with := newEnclave(t, snp, snp.listen(t))
	without := newEnclave(t, nil, "")
	for query, made := range map[string]*enclave{"?nonce=" + strings.Repeat("07", 32): with, "": without} {
		made.settings.Name = PredicateService
		_, response := ask(t, made.attester(t), query)
		if _, err := attestdoc.Parse(response); err != nil {
			t.Errorf("%s: %v", response, err)
		}
	}
}

func TestTheLayoutNeedsTheMachinesInitdataToo(t *testing.T) {
	snp := &standIn{tee: TEESNP, hostData: make([]byte, snpHostData)}
	made := newEnclave(t, snp, snp.listen(t))
	made.settings.Name = PredicateService
	if code, body := ask(t, made.attester(t), ""); code != http.StatusServiceUnavailable || !strings.Contains(string(body), "other initdata") {
		t.Errorf("%d %s", code, body)
	}
}
