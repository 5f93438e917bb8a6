package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"cloister.dev/guest/internal/bundle"
	"cloister.dev/guest/internal/source"
	"cloister.dev/guest/internal/verify"
)

// verifyBundle verifies what a bundle has, without network. Options replace what the bundle has of the
// same, so that an auditor can use files of their own.
func verifyBundle(ctx context.Context, chosen options) verdict {
	read, err := bundle.Read(chosen.fromBundle)
	if err != nil {
		return refused(verdict{}, badBundle(err))
	}
	certificate, err := x509.ParseCertificate(read.Certificate)
	if err != nil {
		return refused(verdict{}, badBundle(fmt.Errorf("certificate: %w", err)))
	}
	nonce, err := hex.DecodeString(read.Nonce)
	if err != nil {
		return refused(verdict{}, badBundle(fmt.Errorf("nonce: %w", err)))
	}
	if read.Service != chosen.target.Service {
		return refused(verdict{host: read.Host}, badBundle(fmt.Errorf("service: it is of %q, not %q; name it in --service if that is what you expect", read.Service, chosen.target.Service)))
	}
	chosen.target.Host = read.Host
	judge, err := newJudge(ctx, chosen)
	if err != nil {
		return refused(verdict{host: read.Host}, err)
	}
	judge.recorder = &bundle.Recorder{Kept: read.Downloads}
	var notes []string
	if chosen.measurement == "" {
		if notes, err = judge.takeInputs(read); err != nil {
			return refused(verdict{host: read.Host}, err)
		}
	}
	at := read.Time
	if !chosen.verifiedAt.IsZero() {
		at = chosen.verifiedAt
	}
	notes = append(notes, fmt.Sprintf("verified as of %s; the bundle is of %s", at.UTC().Format(time.RFC3339), read.Time.UTC().Format(time.RFC3339)),
		"that somebody had this connection at that time is the word of whoever made the bundle: its nonce was theirs")
	made := judge.judge(presented{document: read.Document, key: sha256.Sum256(certificate.RawSubjectPublicKeyInfo), nonce: nonce}, at)
	made.notes = append(made.notes, notes...)
	return made
}

// takeInputs takes from the bundle what no option names, and returns what rests on its maker's word.
func (j *judge) takeInputs(read bundle.Bundle) ([]string, error) {
	var notes []string
	if j.inputs.Config == nil {
		if read.ConfigFile == nil {
			return nil, badBundle(errors.New("config_file: missing; whoever made it knew only a measurement: name --file or --measurement"))
		}
		j.inputs.Config = read.ConfigFile
		if read.Source != nil {
			j.release = &source.Release{Repo: read.Source.Repo, Tag: read.Source.Tag, Commit: read.Source.Commit, FileName: read.Source.FileName, File: read.ConfigFile}
			notes = append(notes, "that the configuration file is of that repository and tag is the word of whoever made the bundle; with --file it is yours")
		}
	}
	if j.inputs.HostProfile == nil && read.HostProfile != nil {
		j.inputs.HostProfile = read.HostProfile
		notes = append(notes, "the host profile is the bundle's")
	}
	if j.inputs.Documents == nil && read.Documents != nil {
		j.inputs.Documents = read.Documents
		notes = append(notes, "the documents are the bundle's")
	}
	return notes, nil
}

func badBundle(err error) error {
	return &verify.Failure{Class: verify.ClassUsage, Step: "--from-bundle", Problem: err.Error(), Remedy: "name a file that `cloister-verify --bundle` of this release wrote"}
}
