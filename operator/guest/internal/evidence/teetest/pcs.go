package teetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"
	"time"

	"cloister.dev/guest/internal/evidence/attestdoc"
)

// qeProduct and qeSigner identify the vendor's quoting enclave.
const qeProduct = 2

var qeSigner = bytes.Repeat([]byte{0x5A}, 32)

// PCS are the answers of the vendor's service, as they were at a time.
type PCS struct {
	// At is the time at which they were issued.
	At time.Time
	// Status and QEStatus are the states of the level that the processor and its quoting enclave have.
	Status, QEStatus string
	// RevokedPCK and RevokedPlatform put a certificate on a revocation list.
	RevokedPCK, RevokedPlatform bool
	// FMSPC is another processor's, or empty.
	FMSPC string
}

// Collateral returns the answers by their type in a document.
func (t *TDX) Collateral(answers PCS) (map[string][]byte, error) {
	if answers.FMSPC == "" {
		answers.FMSPC = fmspc
	}
	tcb, err := t.signedJSON("tcbInfo", answers.tcbInfo())
	if err != nil {
		return nil, err
	}
	identity, err := t.signedJSON("enclaveIdentity", answers.qeIdentity())
	if err != nil {
		return nil, err
	}
	ofPCK, err := list(answers.At, t.platform, t.platformKey, t.pck, answers.RevokedPCK)
	if err != nil {
		return nil, err
	}
	ofRoot, err := list(answers.At, t.root, t.rootKey, t.platform, answers.RevokedPlatform)
	signing := append(asPEM(t.signing.Raw), asPEM(t.root.Raw)...)
	return map[string][]byte{
		attestdoc.IntelTCBInfo: tcb, attestdoc.IntelTCBInfoChain: signing,
		attestdoc.IntelQEIdentity: identity, attestdoc.IntelQEIdentityChain: signing,
		attestdoc.IntelPCKCRL: ofPCK, attestdoc.IntelPCKCRLChain: append(asPEM(t.platform.Raw), asPEM(t.root.Raw)...),
		attestdoc.IntelRootCRL: ofRoot,
	}, err
}

func list(at time.Time, issuer *x509.Certificate, key *ecdsa.PrivateKey, about *x509.Certificate, revoked bool) ([]byte, error) {
	made := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: at, NextUpdate: at.Add(listLife)}
	if revoked {
		made.RevokedCertificateEntries = []x509.RevocationListEntry{{SerialNumber: about.SerialNumber, RevocationTime: at}}
	}
	return x509.CreateRevocationList(rand.Reader, made, issuer, key)
}

// signedJSON returns an answer in which the vendor signed the bytes of one field.
func (t *TDX) signedJSON(name string, content any) ([]byte, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	signature, err := sign(t.signingKey, body)
	if err != nil {
		return nil, err
	}
	return []byte(`{"` + name + `":` + string(body) + `,"signature":"` + hex.EncodeToString(signature) + `"}`), nil
}

func (p PCS) dates() map[string]any {
	format := "2006-01-02T15:04:05Z"
	return map[string]any{
		"issueDate": p.At.UTC().Format(format), "nextUpdate": p.At.Add(listLife).UTC().Format(format), "tcbEvaluationDataNumber": 17,
	}
}

func (p PCS) tcbInfo() map[string]any {
	level := func(svn, pce int, status string) map[string]any {
		components := make([]map[string]int, 16)
		for index := range components {
			components[index] = map[string]int{"svn": svn}
		}
		tdx := append([]map[string]int{}, components...)
		tdx[1] = map[string]int{"svn": 0}
		return map[string]any{
			"tcb":     map[string]any{"sgxtcbcomponents": components, "pcesvn": pce, "tdxtcbcomponents": tdx},
			"tcbDate": "2026-01-01T00:00:00Z", "tcbStatus": status,
		}
	}
	made := p.dates()
	made["id"], made["version"], made["fmspc"], made["pceId"], made["tcbType"] = "TDX", 3, p.FMSPC, pceID, 0
	made["tdxModule"] = map[string]string{
		"mrsigner": strings.Repeat("00", 48), "attributes": strings.Repeat("00", 8), "attributesMask": strings.Repeat("FF", 8),
	}
	made["tcbLevels"] = []any{level(componentsSVN, pceSVN, orUpToDate(p.Status)), level(0, 0, "OutOfDate")}
	return made
}

func (p PCS) qeIdentity() map[string]any {
	made := p.dates()
	made["id"], made["version"], made["isvprodid"] = "TD_QE", 2, qeProduct
	made["miscselect"], made["miscselectMask"] = "00000000", "FFFFFFFF"
	made["attributes"], made["attributesMask"] = strings.Repeat("00", 16), strings.Repeat("FF", 16)
	made["mrsigner"] = hex.EncodeToString(qeSigner)
	made["tcbLevels"] = []any{map[string]any{"tcb": map[string]int{"isvsvn": qeSVN}, "tcbDate": "2026-01-01T00:00:00Z", "tcbStatus": orUpToDate(p.QEStatus)}}
	return made
}

func orUpToDate(status string) string {
	if status == "" {
		return "UpToDate"
	}
	return status
}
