package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/attestdoc"
)

const folder = "../../../../../tests/data/attestation"

// leastVectors is how many the project promises to others.
const leastVectors = 120

// base is a bundle and what its client knows.
type base struct {
	bundle bundle.Bundle
	client client
}

func (m *maker) bases() map[string]base {
	made := map[string]base{}
	for _, tee := range []string{snp, tdx, none} {
		scene := m.scene(tee)
		document := m.make(scene)
		made[tee] = base{
			bundle.Bundle{
				Format: bundle.Format, Time: now, Host: "web.acme.example.com", Service: "cloister",
				Certificate: m.certificate.Raw, Nonce: hex.EncodeToString(nonce), Document: document,
			},
			client{
				Nonce: hex.EncodeToString(nonce), SPKI: hex.EncodeToString(m.spki()), Measurement: digestOf(scene.measurement),
				Platform: []string{hex.EncodeToString(m.launch(tee))}, Time: now.Format(time.RFC3339),
			},
		}
	}
	return made
}

func digestOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// roots are the certificates that clients of the vectors trust, PEM.
func (m *maker) roots() []byte {
	var last *pem.Block
	for rest := m.collateral(m.scene(tdx))[attestdoc.IntelTCBInfoChain]; ; {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		last, rest = block, after
	}
	return append(m.snp.CertChain(), pem.EncodeToMemory(last)...)
}

// TestVectorsAreThoseOfTheirGenerator fails where the files differ from what is generated.
func TestVectorsAreThoseOfTheirGenerator(t *testing.T) {
	made := newMaker(t)
	bases := made.bases()
	files := map[string][]byte{"roots.pem": made.roots()}
	clients := map[string]client{}
	for name, each := range bases {
		files["base-"+name+".json"] = indented(t, each.bundle)
		clients[name] = each.client
	}
	files["clients.json"] = indented(t, clients)
	vectors := made.vectors(bases)
	for index := range vectors {
		err := made.check(vectors[index], bases)
		var failure *verify.Failure
		if errors.As(err, &failure) {
			vectors[index].Verdict.Step = failure.Step
		}
		vectors[index].Verdict.Verified = err == nil
		if got := codeOf(err); got != vectors[index].Verdict.Code {
			t.Errorf("%s: code %d instead of %d: %v", vectors[index].Name, got, vectors[index].Verdict.Code, err)
		}
	}
	if len(vectors) < leastVectors {
		t.Errorf("%d vectors, at least %d are promised", len(vectors), leastVectors)
	}
	files["vectors.json"] = indented(t, vectors)
	for name, content := range files {
		path := filepath.Join(folder, name)
		if os.Getenv("CLOISTER_WRITE_VECTORS") != "" {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, content) {
			t.Errorf("%s is not what is generated (%v): CLOISTER_WRITE_VECTORS=1 go test ./internal/client/conformance", name, err)
		}
	}
}

// check lets the verifier judge a vector, as a client without network does.
func (m *maker) check(each vector, bases map[string]base) error {
	m.t.Helper()
	known := bases[each.Base].client
	want := verify.Expected{Now: now}
	if each.Client != nil {
		known = known.with(*each.Client)
	}
	var err error
	if want.Now, err = time.Parse(time.RFC3339, known.Time); err != nil {
		m.t.Fatal(err)
	}
	want.Nonce = fromHex(m.t, known.Nonce)
	want.Key = [sha256.Size]byte(fromHex(m.t, known.SPKI))
	want.Measurement = [sha256.Size]byte(fromHex(m.t, known.Measurement[len("sha256:"):]))
	for _, launch := range known.Platform {
		want.Launch = append(want.Launch, fromHex(m.t, launch))
	}
	if known.MinimumTCB != "" {
		least := &want.MinimumTCB
		if _, err := fmt.Sscanf(known.MinimumTCB, "%d,%d,%d,%d", &least.BlSpl, &least.TeeSpl, &least.SnpSpl, &least.UcodeSpl); err != nil {
			m.t.Fatal(err)
		}
	}
	if known.Roots != "makers" {
		want.InsecureRoots, want.InsecureIntelRoots = m.snp.Roots(), m.tdx.Roots()
	}
	return check(each.apply(m.t, bases[each.Base].bundle.Document), want)
}

// check reads a document and checks it.
func check(document []byte, want verify.Expected) error {
	read, err := verify.Read(document)
	if err == nil {
		_, err = verify.Check(read, want)
	}
	return err
}

// with returns what a client knows, with some of it replaced.
func (c client) with(other client) client {
	for _, each := range []struct{ held, other *string }{
		{&c.Nonce, &other.Nonce}, {&c.SPKI, &other.SPKI}, {&c.Measurement, &other.Measurement}, {&c.MinimumTCB, &other.MinimumTCB},
		{&c.Time, &other.Time}, {&c.Roots, &other.Roots},
	} {
		if *each.other != "" {
			*each.held = *each.other
		}
	}
	if other.Platform != nil {
		c.Platform = other.Platform
	}
	return c
}

func codeOf(err error) verify.Class {
	var failure *verify.Failure
	if errors.As(err, &failure) {
		return failure.Class
	}
	if err != nil {
		return -1
	}
	return 0
}

func fromHex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func indented(t *testing.T, value any) []byte {
	t.Helper()
	var made bytes.Buffer
	if err := json.Indent(&made, marshal(t, value), "", " "); err != nil {
		t.Fatal(err)
	}
	return append(made.Bytes(), '\n')
}
