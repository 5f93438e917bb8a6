package bootverify

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"

	"cloister.dev/guest/internal/measuredboot"
)

// Types of events, as the TCG's firmware profile numbers them.
const (
	eventTag         = 0x00000006
	eventApplication = 0x80000003
)

// checkMachine replays the event log and compares the machine with the platform.
func checkMachine(read measuredboot.Evidence, want Expectation) error {
	values, err := read.Values()
	if err != nil {
		return measuredboot.Refuse(measuredboot.StepRegisters, "%v", err)
	}
	events, err := replay(read.EventLog, values)
	if err != nil {
		return err
	}
	for index, value := range read.Registers {
		if wanted := want.Platform.Registers[fmt.Sprint(index)]; isCompared(index) && value != wanted {
			return measuredboot.Refuse(measuredboot.StepFirmware, "PCR %d is %s, that of the platform %s", index, value, wanted)
		}
	}
	if err := checkKernel(events[kernelRegister], want.Platform.Kernel); err != nil {
		return err
	}
	return checkStart(events[commandRegister], want)
}

// replay returns the events of each register. Their digests give the registers' values; types and data
// prove nothing, except where the data has the digest.
func replay(log []byte, values [][]byte) ([][]tcg.Event, error) {
	parsed, err := tcg.ParseEventLog(log, tcg.ParseOpts{})
	if err != nil {
		return nil, measuredboot.Refuse(measuredboot.StepEventLog, "%v", err)
	}
	registers := make([]register.MR, len(values))
	for index, value := range values {
		registers[index] = register.PCR{Index: index, Digest: value, DigestAlg: crypto.SHA256}
	}
	found, err := parsed.Verify(registers)
	if err != nil {
		return nil, measuredboot.Refuse(measuredboot.StepEventLog, "%v", err)
	}
	events := make([][]tcg.Event, len(values))
	for _, event := range found {
		events[event.Index] = append(events[event.Index], event)
	}
	for index, value := range values {
		if len(events[index]) == 0 && !bytes.Equal(value, make([]byte, sha256.Size)) {
			return nil, measuredboot.Refuse(measuredboot.StepEventLog, "PCR %d is %x without an event", index, value)
		}
	}
	return events, nil
}

// words are what firmware measures into PCR 4 beside what it starts, by their digests (TCG PC Client
// Platform Firmware Profile, sections 3.3.4.5 and 10.4.4). The digest of a program is one of bytes too: a log
// that says that these are a word of another text must not hide that they were started.
var words = map[string]bool{
	digestOf("Calling EFI Application from Boot Option"): true,
	digestOf("\x00\x00\x00\x00"):                         true, // nothing more is started before the system
}

func digestOf(word string) string {
	digest := sha256.Sum256([]byte(word))
	return hex.EncodeToString(digest[:])
}

// checkKernel returns an error unless the kernel is the only program that the firmware started.
func checkKernel(events []tcg.Event, kernel string) error {
	started := ""
	for _, event := range events {
		digest := hex.EncodeToString(event.Digest)
		switch {
		case words[digest]:
		case event.Type != eventApplication:
			return measuredboot.Refuse(measuredboot.StepKernel, "an event of type %#x in PCR %d says something else than which program was started", uint32(event.Type), kernelRegister)
		case digest != kernel:
			return measuredboot.Refuse(measuredboot.StepKernel, "the firmware started a program with the digest %s, the platform's kernel has %s", digest, kernel)
		case started != "":
			return measuredboot.Refuse(measuredboot.StepKernel, "the firmware started the kernel twice")
		default:
			started = digest
		}
	}
	if started == "" {
		return measuredboot.Refuse(measuredboot.StepKernel, "the firmware started no program")
	}
	return nil
}

// checkStart returns an error unless the kernel measured its command line and its initial file system,
// once each.
func checkStart(events []tcg.Event, want Expectation) error {
	if len(events) != 2 || events[0].Type != eventTag || events[1].Type != eventTag {
		return measuredboot.Refuse(measuredboot.StepCommandLine, "PCR %d has %d events instead of those of the command line and of the initial file system", commandRegister, len(events))
	}
	if digest := want.Platform.command(want.Measurement); !bytes.Equal(events[0].Digest, digest) {
		return measuredboot.Refuse(measuredboot.StepCommandLine, "the kernel was started with a command line of the digest %x, with the measurement sha256:%x it is %x", events[0].Digest, want.Measurement, digest)
	}
	if digest := hex.EncodeToString(events[1].Digest); digest != want.Platform.Initrd {
		return measuredboot.Refuse(measuredboot.StepInitrd, "the initial file system has the digest %s, that of the platform %s", digest, want.Platform.Initrd)
	}
	return nil
}
