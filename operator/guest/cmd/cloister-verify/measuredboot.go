package main

import (
	"errors"
	"fmt"

	"cloister.dev/guest/internal/bootverify"
	"cloister.dev/guest/internal/verify"
)

// checkMeasuredBoot checks the options of a measured boot. Whoever owns a virtual TPM chooses what it
// quotes, so that its root is given explicitly, and no root is built in.
func (o *options) checkMeasuredBoot() error {
	if (o.bootPlatform == "") != (o.bootRoot == "") {
		return errors.New("--measured-boot, --insecure-tpm-root: both are needed, or none")
	}
	if o.sameBoot == "" {
		return nil
	}
	if o.bootPlatform == "" {
		return errors.New("--same-boot: it belongs to --measured-boot")
	}
	var rest string
	o.boot = &bootverify.Counters{}
	found, _ := fmt.Sscanf(o.sameBoot+"\n", "%d,%d,%d%s", &o.boot.Resets, &o.boot.Restarts, &o.boot.Clock, &rest)
	if found != 3 {
		return fmt.Errorf("--same-boot: %q is not three numbers, RESETS,RESTARTS,CLOCK", o.sameBoot)
	}
	return nil
}

// readMeasuredBoot reads what is trusted of machines with a measured boot; nil if nothing is.
func readMeasuredBoot(chosen options) (*verify.MeasuredBoot, error) {
	if chosen.bootPlatform == "" {
		return nil, nil
	}
	made := &verify.MeasuredBoot{Since: chosen.boot}
	text, err := readFile("--measured-boot", chosen.bootPlatform)
	if err != nil {
		return nil, err
	}
	if made.Platform, err = bootverify.ReadPlatform(text); err != nil {
		return nil, badInput("--measured-boot", err, "name the platform file of the machines; docs/measured-boot.md describes it")
	}
	if text, err = readFile("--insecure-tpm-root", chosen.bootRoot); err != nil {
		return nil, err
	}
	if made.InsecureAuthorities, err = bootverify.ReadAuthorities(text); err != nil {
		return nil, badInput("--insecure-tpm-root", err, "name a PEM file with the root and what it signed")
	}
	return made, nil
}
