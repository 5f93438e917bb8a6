package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/client/source"
	"cloister.dev/guest/internal/client/verify"
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
	if chosen.measurement == "" {
		if err := judge.takeInputs(read); err != nil {
			return refused(verdict{host: read.Host}, err)
		}
	}
	at := read.Time
	if !chosen.verifiedAt.IsZero() {
		at = chosen.verifiedAt
	}
	shown := presented{document: read.Document, key: sha256.Sum256(certificate.RawSubjectPublicKeyInfo), nonce: nonce}
	// What the client knows itself takes the place of what the bundle has.
	if len(chosen.ownNonce) > 0 {
		shown.nonce = chosen.ownNonce
	}
	if len(chosen.ownKey) > 0 {
		shown.key = [sha256.Size]byte(chosen.ownKey)
	}
	made := judge.judge(shown, at)
	made.isBundle, made.onBundle = true, onBundlesWord(chosen, read)
	made.notes = append(made.notes, fmt.Sprintf("verified as of %s; the bundle is of %s", at.UTC().Format(time.RFC3339), read.Time.UTC().Format(time.RFC3339)))
	if made.failure == nil && chosen.strict && len(made.onBundle) > 0 {
		return refused(made, &verify.Failure{
			Class: verify.ClassWord, Step: "bundle's word", Problem: "taken from the word of the bundle's author: " + strings.Join(made.onBundle, ", "),
			Remedy: "name what you know yourself, with the options in parentheses",
		})
	}
	return made
}

// onBundlesWord returns what only the bundle claims, each with the option that replaces it. The bundle's
// author chose the time, by which lists of revoked certificates count, and the certificate, by which the evidence
// is that of a connection.
func onBundlesWord(chosen options, read bundle.Bundle) []string {
	isComputed := chosen.measurement == ""
	file := "the configuration file"
	if read.Source != nil {
		file += " of that repository and tag"
	}
	var taken []string
	for _, each := range []struct {
		isTaken      bool
		what, option string
	}{
		{chosen.nonce == "", "that the document is fresh", "--nonce"},
		{chosen.tlsKey == "", "the host and the connection to it", "--tls-key"},
		{chosen.at == "", "the time", "--at"},
		{isComputed && chosen.file == "", file, "--file"},
		{isComputed && chosen.hostProfile == "" && read.HostProfile != nil, "the host profile", "--host-profile"},
		{isComputed && chosen.documents == "" && read.Documents != nil, "the documents", "--documents"},
	} {
		if each.isTaken {
			taken = append(taken, each.what+" ("+each.option+")")
		}
	}
	return taken
}

// takeInputs takes from the bundle what no option names.
func (j *judge) takeInputs(read bundle.Bundle) error {
	if j.inputs.Config == nil {
		if read.ConfigFile == nil {
			return badBundle(errors.New("config_file: missing, since the bundle was made with only a measurement; name --file or --measurement"))
		}
		j.inputs.Config = read.ConfigFile
		if read.Source != nil {
			j.release = &source.Release{Repo: read.Source.Repo, Tag: read.Source.Tag, Commit: read.Source.Commit, FileName: read.Source.FileName, File: read.ConfigFile}
		}
	}
	if j.inputs.HostProfile == nil {
		j.inputs.HostProfile = read.HostProfile
	}
	if j.inputs.Documents == nil {
		j.inputs.Documents = read.Documents
	}
	return nil
}

func badBundle(err error) error {
	return &verify.Failure{Class: verify.ClassUsage, Step: "--from-bundle", Problem: err.Error(), Remedy: "name a file that `cloister-verify --bundle` of this release wrote"}
}
