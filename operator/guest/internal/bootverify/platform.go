package bootverify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/commandline"
	"cloister.dev/guest/internal/strictjson"
)

// PlatformFormat is the format of platform files.
const PlatformFormat = "https://cloister.dev/measured-boot-platform/v1"

// Indices of the registers that are compared event by event; all others are compared as they are.
const (
	kernelRegister  = 4
	commandRegister = 9
)

// Place is where the command line of a platform has the digest of the measurement document.
const Place = "{measurement}"

// Platform is what a verifier trusts of a machine: firmware, kernel and initial file system. It is the same
// for all enclaves of a machine of this kind.
type Platform struct {
	// Format is PlatformFormat.
	Format string `json:"format"`
	// CommandLine is the kernel's command line, with Place where the measurement's digest is.
	CommandLine string `json:"command_line"`
	// Initrd is the SHA-256 of the initial file system, Kernel that of the kernel as Authenticode
	// computes it.
	Initrd string `json:"initrd"`
	Kernel string `json:"kernel"`
	// Registers are the values of PCR 0 to 9, without 4 and 9, by their numbers.
	Registers map[string]string `json:"registers"`
}

// ReadPlatform reads a platform file strictly.
func ReadPlatform(text []byte) (Platform, error) {
	read, err := strictjson.DecodeExact[Platform](text)
	if err != nil {
		return Platform{}, err
	}
	if read.Format != PlatformFormat {
		return Platform{}, fmt.Errorf("format: %q is not %s", read.Format, PlatformFormat)
	}
	if strings.Count(read.CommandLine, Place) != 1 || commandline.Measurement(read.CommandLine) != Place {
		return Platform{}, fmt.Errorf("command_line: must have %s=%s once; without it nothing binds the measurement", commandline.Parameter, Place)
	}
	for name, digest := range map[string]string{"initrd": read.Initrd, "kernel": read.Kernel} {
		if _, err := measuredboot.ReadDigest(digest); err != nil {
			return Platform{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	for index := range measuredboot.Registers {
		name := fmt.Sprint(index)
		value, given := read.Registers[name]
		if compared := isCompared(index); compared != given {
			return Platform{}, fmt.Errorf("registers: %s must be there, except 4 and 9, which kernel, initrd and command_line decide", name)
		}
		if _, err := measuredboot.ReadDigest(value); given && err != nil {
			return Platform{}, fmt.Errorf("registers.%s: %w", name, err)
		}
	}
	if len(read.Registers) != measuredboot.Registers-2 {
		return Platform{}, fmt.Errorf("registers: only 0 to %d are quoted", measuredboot.Registers-1)
	}
	return read, nil
}

// isCompared returns whether a register is compared as it is.
func isCompared(index int) bool { return index != kernelRegister && index != commandRegister }

// command returns the digest of the command line that names a measurement.
func (p Platform) command(measurement [sha256.Size]byte) []byte {
	digest := commandline.Digest(strings.Replace(p.CommandLine, Place, "sha256:"+hex.EncodeToString(measurement[:]), 1))
	return digest[:]
}
