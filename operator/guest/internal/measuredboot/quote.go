package measuredboot

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// EventLogFile is where the kernel shows the firmware's log.
const EventLogFile = "/sys/kernel/security/tpm0/binary_bios_measurements"

const (
	// maxEventLog is the largest log in bytes that is read; OVMF's have 2 KiB, others up to 60.
	maxEventLog = 128 << 10
	// readTries is how often registers are read again because something extended one meanwhile.
	readTries = 4
)

// Machine is the machine that this program runs in.
type Machine struct {
	// Address is that of its TPM.
	Address string
	// EventLog is the file of the firmware's log.
	EventLog string

	turn sync.Mutex
}

// Evidence returns a quote that binds report data.
func (m *Machine) Evidence(reportData []byte) (Evidence, error) {
	m.turn.Lock() // a TPM does one thing at a time, and has little memory
	defer m.turn.Unlock()
	events, err := readEventLog(m.EventLog)
	if err != nil {
		return Evidence{}, err
	}
	machine, err := Open(m.Address)
	if err != nil {
		return Evidence{}, fmt.Errorf("the machine's TPM cannot be opened: %w", err)
	}
	defer machine.Close()
	certificate, err := ReadIndex(machine, CertificateIndex)
	if err != nil {
		return Evidence{}, fmt.Errorf("the attestation key has no certificate: %w", err)
	}
	key, err := CreateKey(machine)
	if err != nil {
		return Evidence{}, err
	}
	defer Flush(machine, key.ObjectHandle)
	made := Evidence{Certificate: certificate, EventLog: events}
	for range readTries {
		registers, err := readRegisters(machine)
		if err != nil {
			return Evidence{}, err
		}
		quoted, err := tpm2.Quote{
			SignHandle:     tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)},
			QualifyingData: tpm2.TPM2BData{Buffer: reportData},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
			PCRSelect:      selection(),
		}.Execute(machine)
		if err != nil {
			return Evidence{}, fmt.Errorf("the TPM does not quote: %w", err)
		}
		made.Quote, made.Signature, made.Registers = quoted.Quoted.Bytes(), tpm2.Marshal(quoted.Signature), registers
		if err := made.CheckRegisters(); err == nil {
			return made, nil
		}
	}
	return Evidence{}, errors.New("the TPM's registers change all the time; something in the machine extends PCR 0 to 9")
}

// selection selects the registers that are quoted.
func selection() tpm2.TPMLPCRSelection {
	indices := make([]uint, Registers)
	for index := range indices {
		indices[index] = uint(index)
	}
	return selectionOf(indices)
}

func selectionOf(indices []uint) tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(indices...)}}}
}

// readRegisters reads PCR 0 to 9. The TPM returns up to eight at a time.
func readRegisters(machine transport.TPM) ([]string, error) {
	indices := make([]uint, Registers)
	for index := range indices {
		indices[index] = uint(index)
	}
	var registers []string
	for some := range slices.Chunk(indices, 8) {
		read, err := tpm2.PCRRead{PCRSelectionIn: selectionOf(some)}.Execute(machine)
		if err != nil {
			return nil, fmt.Errorf("the TPM's registers cannot be read: %w", err)
		}
		if len(read.PCRValues.Digests) != len(some) {
			return nil, errors.New("the TPM has no bank of SHA-256; start it with that one")
		}
		for _, value := range read.PCRValues.Digests {
			registers = append(registers, hex.EncodeToString(value.Buffer))
		}
	}
	return registers, nil
}

func readEventLog(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the firmware's event log cannot be read: %w", err)
	}
	defer file.Close()
	events, err := io.ReadAll(io.LimitReader(file, maxEventLog+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the firmware's event log cannot be read: %w", err)
	case len(events) == 0 || len(events) > maxEventLog:
		return nil, fmt.Errorf("the firmware's event log has %d bytes; between 1 and %d are read", len(events), maxEventLog)
	}
	return events, nil
}
