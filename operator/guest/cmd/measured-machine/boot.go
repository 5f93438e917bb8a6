package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// documentsFile is where QEMU shows the documents that the host carries into the machine. They are not
// measured; the guest compares them with the measurement that the command line names.
const documentsFile = "/sys/firmware/qemu_fw_cfg/by_name/opt/dev.cloister.documents/raw"

const (
	guestDirectory = "/.cloister"
	runDirectory   = "/run/cloister"
	guest          = "/guest"
	terminationLog = "/dev/termination-log"
	patience       = 60 * time.Second
)

// Users of the sidecars, as the operator sets them.
const (
	keepUser  = 65001
	agentUser = 65003
)

// boot starts the parts of the enclave, and returns why one of them has ended.
func boot() error {
	if err := prepare(); err != nil {
		return err
	}
	if err := unpackDocuments(); err != nil {
		return fmt.Errorf("documents: %w", err)
	}
	if err := makeDirectories(); err != nil {
		return err
	}
	if err := showTPM(agentUser); err != nil {
		return err
	}
	ended := make(chan error)
	start := func(name string, command *exec.Cmd) {
		go func() { ended <- fmt.Errorf("%s ended: %v", name, run(command)) }()
	}
	start("guest keep", sidecar(keepUser, "keep", "-socket", runDirectory+"/keep/keeper.sock", "-evidence", "measured-boot"))
	installed := make(chan error, 1)
	go func() { installed <- run(sidecar(keepUser, "install", guestDirectory)) }()
	select {
	case err := <-ended:
		return err
	case err := <-installed:
		if err != nil {
			return fmt.Errorf("guest install: %w", err)
		}
	}
	start("guest agent", sidecar(agentUser, "agent", "-spec", "/etc/cloister-agent/agent.json"))
	start("the container", container())
	go func() { ended <- serve() }()
	return <-ended
}

// sidecar returns a command of the guest, as a user without privileges.
func sidecar(user uint32, arguments ...string) *exec.Cmd {
	command := exec.Command(guest, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return command
}

func run(command *exec.Cmd) error {
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

// unpackDocuments unpacks the documents, each at the path at which the Pod mounts it.
func unpackDocuments() error {
	file, err := os.Open(documentsFile)
	if err != nil {
		return err
	}
	defer file.Close()
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		path := filepath.Join("/", header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o444); err != nil {
			return err
		}
	}
}
