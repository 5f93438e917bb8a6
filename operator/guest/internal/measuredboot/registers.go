package measuredboot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/google/go-tpm/tpm2"
)

// Quoted returns what the TPM signed. The restricted key signs nothing else that begins so.
func (e Evidence) Quoted() (tpm2.TPMSAttest, error) {
	read, err := tpm2.Unmarshal[tpm2.TPMSAttest](e.Quote)
	if err != nil || !bytes.Equal(tpm2.Marshal(read), e.Quote) {
		return tpm2.TPMSAttest{}, Refuse(StepSignature, "what is signed cannot be read: %v", err)
	}
	if read.Magic != tpm2.TPMGeneratedValue || read.Type != tpm2.TPMSTAttestQuote {
		return tpm2.TPMSAttest{}, Refuse(StepSignature, "what is signed is not a quote of a TPM")
	}
	return *read, nil
}

// CheckRegisters returns an error unless the quote is over the registers' values.
func (e Evidence) CheckRegisters() error {
	quoted, err := e.Quoted()
	if err != nil {
		return err
	}
	about, err := quoted.Attested.Quote()
	if err != nil {
		return Refuse(StepRegisters, "%v", err)
	}
	if wanted := tpm2.Marshal(selection()); !bytes.Equal(tpm2.Marshal(about.PCRSelect), wanted) {
		return Refuse(StepRegisters, "the quote is over others than PCR 0 to %d of SHA-256", Registers-1)
	}
	values, err := e.Values()
	if err != nil {
		return Refuse(StepRegisters, "%v", err)
	}
	digest := sha256.Sum256(bytes.Join(values, nil))
	if !bytes.Equal(digest[:], about.PCRDigest.Buffer) {
		return Refuse(StepRegisters, "the values have the digest %s, the quote is over %s", hex.EncodeToString(digest[:]), hex.EncodeToString(about.PCRDigest.Buffer))
	}
	return nil
}
