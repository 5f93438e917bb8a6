package verify

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-sev-guest/verify/trust"
)

// rootsOfTheAPI are the keys by which the API tells answers of the makers from others.
const rootsOfTheAPI = "../../../../api/cloister_api/collateral/roots"

// TestTheAPIHasTheMakersKeys compares them with the roots by which this program verifies.
func TestTheAPIHasTheMakersKeys(t *testing.T) {
	block, _ := pem.Decode(intelRoot)
	intel, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := map[string]*x509.Certificate{"intel": intel}
	for _, line := range []string{"Milan", "Genoa", "Turin"} {
		known, err := trust.GetDefaultRootCerts(line)
		if err != nil {
			t.Fatal(err)
		}
		roots[strings.ToLower(line)] = known.ProductCerts.Ark
	}
	files, err := filepath.Glob(filepath.Join(rootsOfTheAPI, "*.pem"))
	if err != nil || len(files) != len(roots) {
		t.Fatalf("%v %v", files, err)
	}
	for name, root := range roots {
		content, err := os.ReadFile(filepath.Join(rootsOfTheAPI, name+".pem"))
		if err != nil {
			t.Fatal(err)
		}
		if key, _ := pem.Decode(content); key == nil || !bytes.Equal(key.Bytes, root.RawSubjectPublicKeyInfo) {
			t.Errorf("%s: the API has another key than %s", name, root.Subject)
		}
	}
}
