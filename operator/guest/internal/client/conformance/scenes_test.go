package conformance

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-sev-guest/verify/testdata"

	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

// spoiled is a scene that was changed before the processor signed it.
type spoiled struct {
	name, about string
	code        verify.Class
	spoil       func(*scene)
	client      *client
	// follows lets the client expect the changed measurement.
	follows bool
}

// of returns the vectors of spoiled scenes.
func (m *maker) of(tee string, bases map[string]base, all []spoiled) []vector {
	m.t.Helper()
	var made []vector
	for _, each := range all {
		scene := m.scene(tee)
		each.spoil(scene)
		document := m.make(scene)
		known := each.client
		if each.follows {
			known = &client{Measurement: digestOf(scene.measurement)}
		}
		made = append(made, vector{
			Name: tee + " " + each.name, About: each.about, Base: tee, Set: difference(m.t, bases[tee].bundle.Document, document),
			Client: known, Verdict: verdict{Code: each.code},
		})
	}
	return made
}

// scenes are what both kinds of processors sign.
func (m *maker) scenes(tee string, bases map[string]base) []vector {
	spki := hex.EncodeToString(m.spki())
	measured := func(old, replacement string) func(*scene) {
		return func(s *scene) { s.change(old, replacement) }
	}
	inside := func(old, replacement string) func(*scene) {
		return func(s *scene) { s.initdata = strings.Replace(s.initdata, old, replacement, 1) }
	}
	return m.of(tee, bases, []spoiled{
		{name: "no nonce signed", about: "the evidence is for no nonce", code: verify.ClassFreshness, spoil: func(s *scene) { s.claim.Nonce = nil }},
		{name: "an old nonce signed", about: "the evidence is for an older nonce", code: verify.ClassFreshness, spoil: func(s *scene) { s.claim.Nonce = bytes.Repeat([]byte{6}, 32) }},
		{name: "another key signed", about: "the evidence binds the key of somebody else", code: verify.ClassKey, spoil: func(s *scene) { s.claim.Keys.TLSSPKI = strings.Repeat("5a", 32) }},
		{name: "no key signed", about: "the evidence binds 32 zero bytes in place of a key", code: verify.ClassKey, spoil: func(s *scene) { s.claim.Keys.TLSSPKI = strings.Repeat("00", 32) }},
		{name: "a key for bodies", about: "the evidence binds a key for encrypted bodies too: verified", spoil: func(s *scene) { s.claim.Keys.HPKEX25519, s.claim.Keys.TLSSPKI = strings.Repeat("a5", 32), spki }},
		{name: "a debug enclave", about: "people may log in", code: verify.ClassDebug, follows: true, spoil: measured(`"debug":false`, `"debug":true`)},
		{name: "measurement of an older version", about: "its documents may not be measured", code: verify.ClassMeasurement, follows: true, spoil: measured("measurement/v2", "measurement/v1")},
		{name: "the node is the unit", about: "the hardware measures the node", code: verify.ClassNotConfidential, follows: true, spoil: measured(`"teeUnit":"Pod"`, `"teeUnit":"Node"`)},
		{name: "rules that nobody published", about: "the measurement has rules of the administrator", code: verify.ClassNotConfidential, follows: true, spoil: measured("6fd23f07", "6fd23f08")},
		{name: "another file of the same release", about: "the measurement has another configuration file", code: verify.ClassMeasurement, spoil: measured(`"configDigest":"sha256:ab`, `"configDigest":"sha256:ac`)},
		{name: "another image", about: "the measurement has another image", code: verify.ClassMeasurement, spoil: measured("registry.example/web@", "registry.example/other@")},
		{name: "another document", about: "the measurement has another document of the agent", code: verify.ClassMeasurement, spoil: measured(`"agent.json":"sha256:b`, `"agent.json":"sha256:c`)},
		{name: "another guest", about: "the measurement has another image of the guest", code: verify.ClassMeasurement, spoil: measured("registry.example/guest@", "registry.example/other@")},
		{name: "initdata of another enclave", about: "the initdata has another measurement", code: verify.ClassInitdata, spoil: inside(`"gpus":0`, `"gpus":1`)},
		{name: "initdata with other rules", about: "the rules in the initdata are not those of the measurement", code: verify.ClassInitdata, spoil: inside("default ExecProcessRequest := false", "default ExecProcessRequest := true")},
		{name: "initdata for another Pod", about: "the rules are for another Pod", code: verify.ClassInitdata, spoil: inside("cloister_pod := {", "cloister_pod := { ")},
		{name: "initdata with rules behind the Pod", about: "the measured description of the Pod has a rule of the host's at its end, which admits what the published rules refuse", code: verify.ClassInitdata, follows: true, spoil: func(s *scene) {
			_, after, _ := strings.Cut(s.initdata, "\ncloister_pod := ")
			pod, _, _ := strings.Cut(after, "\n'''")
			longer := pod + "\n\nExecProcessRequest := true"
			s.initdata = strings.Replace(s.initdata, pod, longer, 1)
			s.change(digestOf(pod), digestOf(longer))
		}},
		{name: "initdata without a Pod", about: "the rules know no Pod", code: verify.ClassInitdata, spoil: inside("\ncloister_pod := ", "\nother := ")},
		{name: "initdata with another file", about: "the initdata has a file that is not measured", code: verify.ClassInitdata, spoil: inside("[data]\n", "[data]\n\"more.toml\" = \"x\"\n")},
		{name: "initdata with a changed file", about: "a file of the initdata is another one", code: verify.ClassInitdata, spoil: inside(`token = ''`, `token = 'x'`)},
		{name: "initdata of another version", about: "the initdata is of a version that nobody knows", code: verify.ClassInitdata, spoil: inside(`"0.1.0"`, `"0.2.0"`)},
		{name: "initdata with an unknown key", about: "the initdata has a key that it does not know", code: verify.ClassInitdata, spoil: inside("[data]", "more = 1\n\n[data]")},
		{name: "initdata with other rules in a table of another case", about: "TOML knows case: the agent of the machine reads the first table, a reader that does not the second", code: verify.ClassInitdata, spoil: inside("[data]\n", "[data]\n\"policy.rego\" = \"package agent_policy\\ndefault ExecProcessRequest := true\\n\"\n\n[Data]\n")},
		{name: "initdata with a comment", about: "the initdata is not in the form that the operator writes", code: verify.ClassInitdata, spoil: inside("[data]", "# more\n[data]")},
		{name: "initdata with a string of another form", about: "the initdata is not in the form that the operator writes", code: verify.ClassInitdata, spoil: inside("\"0.1.0\"", "'0.1.0'")},
		{name: "initdata of another algorithm", about: "the initdata names a hash that this processor does not report", code: verify.ClassInitdata, spoil: inside(`algorithm = "sha`, `algorithm = "sha512" # `)},
		{name: "a machine started with other initdata", about: "the processor reports the digest of other initdata", code: verify.ClassInitdata, spoil: func(s *scene) {
			s.report.HostData, s.quote.ConfigID = bytes.Repeat([]byte{3}, 32), bytes.Repeat([]byte{3}, 48)
		}},
		{name: "a machine started without initdata", about: "the processor reports zeros for initdata", code: verify.ClassInitdata, spoil: func(s *scene) {
			s.report.HostData, s.quote.ConfigID = make([]byte, 32), make([]byte, 48)
		}},
		{name: "another launch", about: "the machine was started with other firmware or another kernel", code: verify.ClassLaunch, spoil: func(s *scene) {
			s.report.Launch, s.quote.MRTD = bytes.Repeat([]byte{3}, 48), bytes.Repeat([]byte{3}, 48)
		}},
	})
}

// signedScenes are what only one kind of processor, or its vendor, signs.
func (m *maker) signedScenes(bases map[string]base) []vector {
	raw := func(at int, value byte) func(*scene) {
		return func(s *scene) { s.report.Change = func(report []byte) { report[at] = value } }
	}
	without := func(types ...string) func(*scene) {
		return func(s *scene) {
			s.collateral = m.collateral(s)
			for _, each := range types {
				delete(s.collateral, each)
			}
		}
	}
	beside := func(name, kind string, spoil func(*scene)) func(*scene) {
		return func(s *scene) {
			var unsigned map[string]json.RawMessage
			if err := json.Unmarshal(m.collateral(s)[kind], &unsigned); err != nil {
				m.t.Fatal(err)
			}
			delete(unsigned, "signature")
			spoil(s)
			s.collateral = m.collateral(s)
			for _, value := range unsigned {
				s.collateral[kind] = fmt.Appendf(nil, "%s,%q:%s}", bytes.TrimSuffix(s.collateral[kind], []byte("}")), name, value)
			}
		}
	}
	made := m.of(snp, bases, []spoiled{
		{name: "debug policy", about: "the host may debug the machine", code: verify.ClassDebug, spoil: func(s *scene) { s.report.Policy.Debug = true }},
		{name: "migration", about: "the machine may be migrated by an agent", code: verify.ClassDebug, spoil: func(s *scene) { s.report.Policy.MigrateMA = true }},
		{name: "VMPL 1", about: "the report is of a less privileged level", code: verify.ClassLaunch, spoil: raw(0x30, 1)},
		{name: "the key of older firmware", about: "the report names other firmware than the certificate of its key: whoever knows an old key signs what they like", code: verify.ClassSignature, spoil: raw(0x186, 9)},
		{name: "the key of another chip", about: "the report names another chip than the certificate of its key", code: verify.ClassSignature, spoil: raw(0x1A0, 1)},
		{name: "new enough", about: "the firmware is as new as the client requires: verified", client: &client{MinimumTCB: "3,1,8,115"}, spoil: func(*scene) {}},
		{name: "old bootloader", about: "the firmware is older than the client requires", code: verify.ClassFirmware, client: &client{MinimumTCB: "4,0,0,0"}, spoil: func(*scene) {}},
		{name: "old TEE", about: "the firmware is older than the client requires", code: verify.ClassFirmware, client: &client{MinimumTCB: "3,2,0,0"}, spoil: func(*scene) {}},
		{name: "old SNP", about: "the firmware is older than the client requires", code: verify.ClassFirmware, client: &client{MinimumTCB: "3,1,9,0"}, spoil: func(*scene) {}},
		{name: "old microcode", about: "the firmware is older than the client requires", code: verify.ClassFirmware, client: &client{MinimumTCB: "3,1,8,116"}, spoil: func(*scene) {}},
		{name: "launched by older firmware", about: "the firmware was replaced by one that is new enough after it had launched the machine", code: verify.ClassFirmware, client: &client{MinimumTCB: "3,1,8,115"}, spoil: raw(0x1F6, 7)},
		{name: "revoked", about: "AMD revoked the certificate that signs those of processors", code: verify.ClassFirmware, spoil: func(s *scene) { s.revoked = true }},
		{name: "no list", about: "the document has no revocation list, and the client no network", code: verify.ClassFirmware, spoil: without(attestdoc.AMDCRL)},
		{name: "no certificate", about: "the document has no certificate of the processor's key", code: verify.ClassSignature, spoil: without(attestdoc.AMDVCEK)},
		{name: "no chain", about: "the document has no chain, which the client has: verified", spoil: without(attestdoc.AMDCertChain)},
		{name: "no collateral", about: "the document has no collateral at all", code: verify.ClassSignature, spoil: without(attestdoc.AMDVCEK, attestdoc.AMDCertChain, attestdoc.AMDCRL)},
	})
	made = append(made, m.of(tdx, bases, []spoiled{
		{name: "old level", about: "Intel says that the processor's level is out of date", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.Status = "OutOfDate" }},
		{name: "revoked level", about: "Intel revoked the processor's level", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.Status = "Revoked" }},
		{name: "old quoting enclave", about: "Intel says that the quoting enclave is out of date", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.QEStatus = "OutOfDate" }},
		{name: "levels that nobody signed", about: "beside tcbInfo, which Intel signed and which says that the level is out of date, the answer has TcbInfo, which says otherwise", code: verify.ClassFirmware, spoil: beside("TcbInfo", attestdoc.IntelTCBInfo, func(s *scene) { s.answers.Status = "OutOfDate" })},
		{name: "an identity that nobody signed", about: "beside enclaveIdentity, which Intel signed, the answer has EnclaveIdentity, which says otherwise", code: verify.ClassFirmware, spoil: beside("EnclaveIdentity", attestdoc.IntelQEIdentity, func(s *scene) { s.answers.QEStatus = "OutOfDate" })},
		{name: "levels of another processor", about: "the levels are those of another kind of processor", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.FMSPC = "00906ea10000" }},
		{name: "revoked processor", about: "the certificate of the processor's key is revoked", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.RevokedPCK = true }},
		{name: "revoked platform", about: "the certificate that signs those of processors is revoked", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.RevokedPlatform = true }},
		{name: "no levels", about: "the document has no levels, and the client no network", code: verify.ClassFirmware, spoil: without(attestdoc.IntelTCBInfo)},
		{name: "no identity", about: "the document has no identity of the quoting enclave", code: verify.ClassFirmware, spoil: without(attestdoc.IntelQEIdentity)},
		{name: "no list", about: "the document has no revocation list of processors", code: verify.ClassFirmware, spoil: without(attestdoc.IntelPCKCRL)},
		{name: "no list of the root", about: "the document has no revocation list of the root", code: verify.ClassFirmware, spoil: without(attestdoc.IntelRootCRL)},
	})...)
	for _, tee := range []string{snp, tdx} {
		made = append(made, m.otherMaker(tee, bases))
	}
	return made
}

// tdBits flips each bit of the TD's attributes and of XFAM, in quotes that the processor signed so.
func (m *maker) tdBits(bases map[string]base) []vector {
	var made []spoiled
	for _, field := range []struct {
		name string
		// names are those of the bits that have one; permitted are bits that a machine may have, or leave.
		names     map[int]string
		permitted []int
		flip      func(*scene, uint64)
	}{
		{
			name: "attributes",
			names: map[int]string{
				0: "DEBUG", 4: "HGS_PLUS_PROF", 5: "PERF_PROF", 6: "PMT_PROF", 16: "ICSSD", 27: "LASS", 28: "SEPT_VE_DISABLE",
				29: "MIGRATABLE", 30: "PKS", 31: "KL", 62: "TPA", 63: "PERFMON",
			},
			permitted: []int{30, 63},
			flip:      func(s *scene, bit uint64) { s.quote.FlipAttributes = bit },
		},
		{
			name: "XFAM",
			names: map[int]string{
				0: "x87", 1: "SSE", 2: "AVX", 3: "BNDREGS", 4: "BNDCSR", 5: "opmask", 6: "ZMM_Hi256", 7: "Hi16_ZMM", 8: "PT", 9: "PKRU", 10: "PASID",
				11: "CET_U", 12: "CET_S", 13: "HDC", 14: "UINTR", 15: "LBR", 16: "HWP", 17: "TILECFG", 18: "TILEDATA", 19: "APX",
			},
			permitted: []int{2, 5, 6, 7, 8, 9, 11, 12, 14, 15, 17, 18},
			flip:      func(s *scene, bit uint64) { s.quote.FlipXFAM = bit },
		},
	} {
		for bit := range 64 {
			name, isNamed := field.names[bit]
			if !isNamed {
				name = "reserved"
			}
			about, code := "the processor signed otherwise than in the base: bit %d of the TD's %s, %s", verify.ClassDebug
			if slices.Contains(field.permitted, bit) {
				about, code = about+": verified", 0
			}
			made = append(made, spoiled{
				name: fmt.Sprintf("%s bit %d", field.name, bit), about: fmt.Sprintf(about, bit, field.name, name), code: code,
				spoil: func(s *scene) { field.flip(s, 1<<bit) },
			})
		}
	}
	return m.of(tdx, bases, made)
}

// reals are a report that a processor of AMD's signed, and damaged copies of it. It is of another enclave, and
// AMD's list is not included: signature and chain are the last that can be verified.
func (m *maker) reals(bases map[string]base) []vector {
	makers := &client{Roots: "makers"}
	real := func(change func(report, vcek []byte)) func(*scene) {
		return func(s *scene) {
			s.evidence = slices.Clone(testdata.AttestationBytes)
			vcek := slices.Clone(testdata.VcekBytes)
			if change != nil {
				change(s.evidence, vcek)
			}
			s.collateral = map[string][]byte{attestdoc.AMDVCEK: vcek}
		}
	}
	made := []spoiled{
		{name: "a real report", about: "a processor of AMD's signed the report, which AMD's roots verify; the document has no revocation list", code: verify.ClassFirmware, client: makers, spoil: real(nil)},
		{name: "a real report for other roots", about: "the client trusts the roots of the vectors alone, not AMD", code: verify.ClassSignature, spoil: real(nil)},
		{name: "a real report with a changed certificate", about: "the last byte of the certificate of its key is another one", code: verify.ClassSignature, client: makers, spoil: real(func(_, vcek []byte) { vcek[len(vcek)-1] ^= 1 })},
		{name: "a real report with the certificate of another processor", about: "its key's certificate is that of the test processor", code: verify.ClassSignature, client: makers, spoil: func(s *scene) {
			real(nil)(s)
			s.collateral[attestdoc.AMDVCEK] = m.snp.VCEK()
		}},
	}
	for _, field := range reportFieldOffsets {
		made = append(made, spoiled{
			name: "a real report, its " + field.name, about: fmt.Sprintf("byte %d of the real report has another lowest bit", field.at), code: verify.ClassSignature, client: makers,
			spoil: real(func(report, _ []byte) { report[field.at] ^= 1 }),
		})
	}
	return m.of(snp, bases, made)
}

// unread are processors that this program does not read, and levels that it does not accept: all honest.
func (m *maker) unread(bases map[string]base) []vector {
	line := func(family, model byte) func(*scene) {
		return func(s *scene) { s.report.Change = func(report []byte) { report[0x188], report[0x189] = family, model } }
	}
	made := m.of(snp, bases, []spoiled{
		{name: "of Turin", about: "the processor is of a product line whose certificates the verifier does not read", code: verify.ClassUnsupported, spoil: line(0x1A, 0x02)},
		{name: "of an unknown product line", about: "the processor is of a family that the verifier does not know", code: verify.ClassUnsupported, spoil: line(0x1F, 0x01)},
	})
	made = append(made, m.of(tdx, bases, []spoiled{{
		name: "quote of version 5", about: "the quote is of a version that the verifier does not read", code: verify.ClassUnsupported,
		spoil: func(s *scene) { s.quote.Version5 = true },
	}})...)
	levels := []spoiled{{name: "revoked quoting enclave", about: "Intel revoked the level of the quoting enclave", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.QEStatus = "Revoked" }}}
	for _, state := range []string{"SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded", "OutOfDateConfigurationNeeded"} {
		levels = append(levels, spoiled{name: "level " + state, about: "Intel says so of the processor's level, which is not UpToDate", code: verify.ClassFirmware, spoil: func(s *scene) { s.answers.Status = state }})
	}
	return append(made, m.of(tdx, bases, levels)...)
}

// otherMaker is a document whose collateral another party signed.
func (m *maker) otherMaker(tee string, bases map[string]base) vector {
	m.t.Helper()
	stranger, err := teetest.NewTDX(now.AddDate(-1, 0, 0))
	if err != nil {
		m.t.Fatal(err)
	}
	foreign, err := stranger.Collateral(teetest.PCS{At: now})
	if err != nil {
		m.t.Fatal(err)
	}
	if tee == snp {
		list, err := x509.ParseRevocationList(foreign[attestdoc.IntelRootCRL])
		if err != nil {
			m.t.Fatal(err)
		}
		foreign = map[string][]byte{attestdoc.AMDVCEK: m.snp.VCEK(), attestdoc.AMDCertChain: m.snp.CertChain(), attestdoc.AMDCRL: slices.Clone(list.Raw)}
	}
	return m.of(tee, bases, []spoiled{{
		name: "collateral of somebody else", about: "somebody else than the maker signed the collateral", code: verify.ClassFirmware,
		spoil: func(s *scene) { s.collateral = foreign },
	}})[0]
}
