// Command measured-machine is process 1 of the virtual machine of `make test-boot`, and certifies the key
// of that machine's TPM before it is started.
//
//	measured-machine enrol -tpm ADDRESS -authority DIRECTORY
//
// As process 1 it takes the place of the kubelet and of the container runtime: it starts `guest keep`,
// `guest agent` and the container of the file by `guest exec`, with the documents that the operator made.
// It has no other part of an enclave: no `guest net` and no packet filter, and in place of `guest
// certificate` and the shim a TLS server whose key it generates.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/enrol"
)

// containerCommand is the command by which the program calls itself as the first process of a container.
const containerCommand = "container"

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == containerCommand:
		exitOn(enterContainer())
	case os.Getpid() == 1:
		fmt.Println("measured-machine:", boot())
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	default:
		exitOn(enrolKey(os.Args[1:]))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "measured-machine:", err)
		os.Exit(1)
	}
}

// enrolKey certifies the attestation key of a TPM by the local authority of swtpm.
func enrolKey(arguments []string) error {
	if len(arguments) == 0 || arguments[0] != "enrol" {
		return errors.New("use: measured-machine enrol -tpm ADDRESS -authority DIRECTORY")
	}
	flags := flag.NewFlagSet("enrol", flag.ContinueOnError)
	address := flags.String("tpm", "", "address of the TPM")
	directory := flags.String("authority", "", "directory of the local authority of swtpm")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	var parts [][]byte
	for _, name := range []string{"swtpm-localca-rootca-cert.pem", "issuercert.pem", "signkey.pem"} {
		part, err := os.ReadFile(filepath.Join(*directory, name))
		if err != nil {
			return fmt.Errorf("-authority: %w", err)
		}
		parts = append(parts, part)
	}
	authority, err := enrol.ReadAuthority(parts[0], parts[1], parts[2])
	if err != nil {
		return fmt.Errorf("-authority: %w", err)
	}
	machine, err := measuredboot.Open(*address)
	if err != nil {
		return fmt.Errorf("-tpm: %w", err)
	}
	defer machine.Close()
	return authority.Enrol(machine, time.Now())
}
