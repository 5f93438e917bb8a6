package teetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"slices"
)

// TDXOptions are the fields of a quote that tests decide.
type TDXOptions struct {
	// ReportData has 64 bytes, ConfigID 48, and MRTD and each of Registers 48.
	ReportData, ConfigID, MRTD []byte
	Registers                  [4][]byte
	// FlipAttributes and FlipXFAM are bits that are otherwise than machines are started with: SEPT_VE_DISABLE,
	// and the features of the first processors with TDX.
	FlipAttributes, FlipXFAM uint64
	// Version5 makes a quote of version 5, which names the type and the size of its body.
	Version5 bool
	// Change changes the quote's header and body before they are signed.
	Change func(signed []byte)
}

// Quote returns a signed quote, of version 4 unless the options say otherwise.
func (t *TDX) Quote(options TDXOptions) ([]byte, error) {
	attestation, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signed := append(quoteHeader(), options.body()...)
	if options.Version5 {
		header, body := signed[:48], signed[48:]
		header[0] = 5
		described := binary.LittleEndian.AppendUint32([]byte{2, 0}, uint32(len(body)))
		signed = slices.Concat(header, described, body)
	}
	if options.Change != nil {
		options.Change(signed)
	}
	signature, err := sign(attestation, signed)
	if err != nil {
		return nil, err
	}
	public := slices.Concat(attestation.X.FillBytes(make([]byte, 32)), attestation.Y.FillBytes(make([]byte, 32)))
	report := qeReport(public)
	endorsement, err := sign(t.pckKey, report)
	if err != nil {
		return nil, err
	}
	chain := slices.Concat(asPEM(t.pck.Raw), asPEM(t.platform.Raw), asPEM(t.root.Raw))
	certification := slices.Concat(report, endorsement, sized16(qeAuthData), typed(5, chain))
	data := slices.Concat(signature, public, typed(6, certification))
	return slices.Concat(signed, binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data), nil
}

// ComponentsTDX returns a quote as the guest components write it.
func ComponentsTDX(quote []byte) ([]byte, error) {
	return json.Marshal(map[string]any{"quote": quote, "cc_eventlog": nil})
}

var qeAuthData = bytes.Repeat([]byte{0xA5}, 32)

func quoteHeader() []byte {
	header := make([]byte, 48)
	binary.LittleEndian.PutUint16(header, 4)
	binary.LittleEndian.PutUint16(header[2:], 2)
	binary.LittleEndian.PutUint32(header[4:], 0x81)
	copy(header[12:], fromHex("939a7233f79c4ca9940a0db3957f0607"))
	return header
}

func (o TDXOptions) body() []byte {
	body := make([]byte, 584)
	for at := range 16 {
		body[at] = componentsSVN
	}
	body[1] = 0 // the TDX module of version 0, whose level is in the components
	binary.LittleEndian.PutUint64(body[0x78:], 1<<28^o.FlipAttributes)
	binary.LittleEndian.PutUint64(body[0x80:], 0x602E7^o.FlipXFAM)
	copy(body[0x88:0xB8], o.MRTD)
	copy(body[0xB8:0xE8], o.ConfigID)
	for index, register := range o.Registers {
		copy(body[0x148+48*index:0x148+48*(index+1)], register)
	}
	copy(body[0x208:], o.ReportData)
	return body
}

// qeReport is the quoting enclave's report, which names the key that signs quotes.
func qeReport(public []byte) []byte {
	report := make([]byte, 384)
	copy(report[0x80:], qeSigner)
	binary.LittleEndian.PutUint16(report[0x100:], qeProduct)
	binary.LittleEndian.PutUint16(report[0x102:], qeSVN)
	digest := sha256.Sum256(append(bytes.Clone(public), qeAuthData...))
	copy(report[0x140:], digest[:])
	return report
}

// sign returns the two numbers of a signature, 32 bytes each.
func sign(key *ecdsa.PrivateKey, message []byte) ([]byte, error) {
	digest := sha256.Sum256(message)
	first, second, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return nil, err
	}
	fill := func(number *big.Int) []byte { return number.FillBytes(make([]byte, 32)) }
	return append(fill(first), fill(second)...), nil
}

func typed(kind uint16, data []byte) []byte {
	made := binary.LittleEndian.AppendUint16(nil, kind)
	return append(binary.LittleEndian.AppendUint32(made, uint32(len(data))), data...)
}

func sized16(data []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(len(data))), data...)
}

func fromHex(text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		panic(err) // a constant of this package
	}
	return data
}
