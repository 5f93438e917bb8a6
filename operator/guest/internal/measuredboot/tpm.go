package measuredboot

import (
	"fmt"
	"strings"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"
)

// Schemes of a TPM's address.
const (
	deviceScheme = "tpm://"
	socketScheme = "tpm+unix://"
)

// CertificateIndex is where the TPM keeps the certificate of its attestation key: the index that Google's
// shielded machines use for keys of this kind.
const CertificateIndex tpm2.TPMHandle = 0x01c10002

// blockSize is how much of the TPM's memory is read or written at once; each TPM can do as much.
const blockSize = 512

// maxCertificate bounds the certificate, in bytes.
const maxCertificate = 4096

// CheckAddress returns an error unless an address is tpm:// with the path of a device, or tpm+unix://
// with that of a socket.
func CheckAddress(address string) error {
	for _, scheme := range []string{deviceScheme, socketScheme} {
		if strings.HasPrefix(address, scheme+"/") {
			return nil
		}
	}
	return fmt.Errorf("%q is neither tpm:// with the path of a device nor tpm+unix:// with that of a socket", address)
}

// Open opens the TPM at an address.
func Open(address string) (transport.TPMCloser, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	if path, isSocket := strings.CutPrefix(address, socketScheme); isSocket {
		return linuxudstpm.Open(path)
	}
	return linuxtpm.Open(strings.TrimPrefix(address, deviceScheme))
}

// attestationKey is the template of the attestation key: P-256, for ECDSA with SHA-256. It is restricted,
// so that it signs nothing that the TPM has not made itself, and derived from the endorsement seed, so
// that it is the same each time.
var attestationKey = tpm2.TPMTPublic{
	Type:    tpm2.TPMAlgECC,
	NameAlg: tpm2.TPMAlgSHA256,
	ObjectAttributes: tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true,
		Restricted: true, SignEncrypt: true,
	},
	Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		CurveID: tpm2.TPMECCNistP256,
		Scheme: tpm2.TPMTECCScheme{
			Scheme:  tpm2.TPMAlgECDSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
		},
	}),
}

// CreateKey creates the attestation key in the TPM. The caller flushes it.
func CreateKey(machine transport.TPM) (*tpm2.CreatePrimaryResponse, error) {
	made, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(attestationKey)}.Execute(machine)
	if err != nil {
		return nil, fmt.Errorf("the TPM does not create its attestation key: %w", err)
	}
	return made, nil
}

// Flush removes an object from the TPM's memory, which has room for three.
func Flush(machine transport.TPM, object tpm2.TPMHandle) {
	_, _ = tpm2.FlushContext{FlushHandle: object}.Execute(machine) // a reset removes it at the latest
}

// ReadIndex reads one index of the TPM's memory.
func ReadIndex(machine transport.TPM, index tpm2.TPMHandle) ([]byte, error) {
	about, err := tpm2.NVReadPublic{NVIndex: index}.Execute(machine)
	if err != nil {
		return nil, fmt.Errorf("the TPM has no index %#x: %w", uint32(index), err)
	}
	public, err := about.NVPublic.Contents()
	if err != nil {
		return nil, err
	}
	if public.DataSize > maxCertificate {
		return nil, fmt.Errorf("index %#x of the TPM has %d bytes, at most %d", uint32(index), public.DataSize, maxCertificate)
	}
	var content []byte
	for offset := uint16(0); offset < public.DataSize; {
		block, err := tpm2.NVRead{
			AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: about.NVName},
			Size:       min(blockSize, public.DataSize-offset), Offset: offset,
		}.Execute(machine)
		if err != nil || len(block.Data.Buffer) == 0 {
			return nil, fmt.Errorf("index %#x of the TPM cannot be read: %w", uint32(index), err)
		}
		content = append(content, block.Data.Buffer...)
		offset += uint16(len(block.Data.Buffer))
	}
	return content, nil
}

// WriteIndex defines one index of the TPM's memory and writes it.
func WriteIndex(machine transport.TPM, index tpm2.TPMHandle, content []byte) error {
	owner := tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)}
	_, err := tpm2.NVDefineSpace{AuthHandle: owner, PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
		NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, DataSize: uint16(len(content)),
		Attributes: tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, AuthRead: true, NoDA: true},
	})}.Execute(machine)
	if err != nil {
		return fmt.Errorf("index %#x of the TPM cannot be defined: %w", uint32(index), err)
	}
	for offset := 0; offset < len(content); offset += blockSize {
		// Its name changes with the first write.
		about, err := tpm2.NVReadPublic{NVIndex: index}.Execute(machine)
		if err != nil {
			return err
		}
		_, err = tpm2.NVWrite{
			AuthHandle: owner, NVIndex: tpm2.NamedHandle{Handle: index, Name: about.NVName},
			Data: tpm2.TPM2BMaxNVBuffer{Buffer: content[offset:min(len(content), offset+blockSize)]}, Offset: uint16(offset),
		}.Execute(machine)
		if err != nil {
			return fmt.Errorf("index %#x of the TPM cannot be written: %w", uint32(index), err)
		}
	}
	return nil
}
