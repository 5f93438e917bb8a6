package attestation

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// snpReportSize is the size of a report, with its signature.
const snpReportSize = 1184

// snpEvidence is evidence as the guest components write it.
type snpEvidence struct {
	Report    *snpReport       `json:"attestation_report"`
	CertChain []snpCertificate `json:"cert_chain"`
}

type snpCertificate struct {
	Type json.RawMessage `json:"cert_type"`
	Data []byte          `json:"data"`
}

type snpTCB struct {
	FMC        *uint8 `json:"fmc"`
	Bootloader uint8  `json:"bootloader"`
	TEE        uint8  `json:"tee"`
	SNP        uint8  `json:"snp"`
	Microcode  uint8  `json:"microcode"`
}

type snpVersion struct {
	Major uint8 `json:"major"`
	Minor uint8 `json:"minor"`
	Build uint8 `json:"build"`
}

// snpReport has the fields of the report of AMD's "SEV Secure Nested Paging Firmware ABI
// Specification", table "ATTESTATION_REPORT structure".
type snpReport struct {
	Version         uint32     `json:"version"`
	GuestSVN        uint32     `json:"guest_svn"`
	Policy          uint64     `json:"policy"`
	FamilyID        []byte     `json:"family_id"`
	ImageID         []byte     `json:"image_id"`
	VMPL            uint32     `json:"vmpl"`
	SignatureAlgo   uint32     `json:"sig_algo"`
	CurrentTCB      snpTCB     `json:"current_tcb"`
	PlatformInfo    uint64     `json:"plat_info"`
	KeyInfo         uint32     `json:"key_info"`
	ReportData      []byte     `json:"report_data"`
	Measurement     []byte     `json:"measurement"`
	HostData        []byte     `json:"host_data"`
	IDKeyDigest     []byte     `json:"id_key_digest"`
	AuthorKeyDigest []byte     `json:"author_key_digest"`
	ReportID        []byte     `json:"report_id"`
	ReportIDMA      []byte     `json:"report_id_ma"`
	ReportedTCB     snpTCB     `json:"reported_tcb"`
	Family          *uint8     `json:"cpuid_fam_id"`
	Model           *uint8     `json:"cpuid_mod_id"`
	Stepping        *uint8     `json:"cpuid_step"`
	ChipID          []byte     `json:"chip_id"`
	CommittedTCB    snpTCB     `json:"committed_tcb"`
	Current         snpVersion `json:"current"`
	Committed       snpVersion `json:"committed"`
	LaunchTCB       snpTCB     `json:"launch_tcb"`
	LaunchVector    *uint64    `json:"launch_mit_vector"`
	CurrentVector   *uint64    `json:"current_mit_vector"`
	Signature       struct {
		R []byte `json:"r"`
		S []byte `json:"s"`
	} `json:"signature"`
}

// bytes returns the report as the processor signed it.
func (r *snpReport) bytes() ([]byte, error) {
	raw := make([]byte, snpReportSize)
	for _, field := range []struct {
		name   string
		offset int
		size   int
		value  []byte
	}{
		{"family_id", 0x10, 16, r.FamilyID},
		{"image_id", 0x20, 16, r.ImageID},
		{"report_data", snpReportDataAt, reportDataSize, r.ReportData},
		{"measurement", 0x90, 48, r.Measurement},
		{"host_data", snpHostDataAt, snpHostData, r.HostData},
		{"id_key_digest", 0xE0, 48, r.IDKeyDigest},
		{"author_key_digest", 0x110, 48, r.AuthorKeyDigest},
		{"report_id", 0x140, 32, r.ReportID},
		{"report_id_ma", 0x160, 32, r.ReportIDMA},
		{"chip_id", 0x1A0, 64, r.ChipID},
		{"signature.r", 0x2A0, 72, r.Signature.R},
		{"signature.s", 0x2E8, 72, r.Signature.S},
	} {
		if len(field.value) != field.size {
			return nil, fmt.Errorf("attestation_report.%s has %d bytes instead of %d", field.name, len(field.value), field.size)
		}
		copy(raw[field.offset:], field.value)
	}
	r.putNumbers(raw)
	return raw, nil
}

func (r *snpReport) putNumbers(raw []byte) {
	little := binary.LittleEndian
	little.PutUint32(raw[0x00:], r.Version)
	little.PutUint32(raw[0x04:], r.GuestSVN)
	little.PutUint64(raw[0x08:], r.Policy)
	little.PutUint32(raw[0x30:], r.VMPL)
	little.PutUint32(raw[0x34:], r.SignatureAlgo)
	r.CurrentTCB.put(raw[0x38:])
	little.PutUint64(raw[0x40:], r.PlatformInfo)
	little.PutUint32(raw[0x48:], r.KeyInfo)
	r.ReportedTCB.put(raw[0x180:])
	for index, part := range []*uint8{r.Family, r.Model, r.Stepping} {
		if part != nil {
			raw[0x188+index] = *part
		}
	}
	r.CommittedTCB.put(raw[0x1E0:])
	r.Current.put(raw[0x1E8:])
	r.Committed.put(raw[0x1EC:])
	r.LaunchTCB.put(raw[0x1F0:])
	if r.LaunchVector != nil {
		little.PutUint64(raw[0x1F8:], *r.LaunchVector)
	}
	if r.CurrentVector != nil {
		little.PutUint64(raw[0x200:], *r.CurrentVector)
	}
}

// put writes the levels in the processor's layout; those with an FMC have another one.
func (t snpTCB) put(raw []byte) {
	if t.FMC != nil {
		raw[0], raw[1], raw[2], raw[3], raw[7] = *t.FMC, t.Bootloader, t.TEE, t.SNP, t.Microcode
		return
	}
	raw[0], raw[1], raw[6], raw[7] = t.Bootloader, t.TEE, t.SNP, t.Microcode
}

func (v snpVersion) put(raw []byte) { raw[0], raw[1], raw[2] = v.Build, v.Minor, v.Major }
