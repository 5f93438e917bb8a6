// Command cloister-verify checks an enclave's attestation on a TLS connection of its own, computes what
// the enclave should be from its repository, and passes requests on to what it has verified.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloister.dev/guest/internal/client/bundle"
	"cloister.dev/guest/internal/client/enclaveconn"
	"cloister.dev/guest/internal/client/verify"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 if verified, else the class of the failure.
func run(ctx context.Context, arguments []string, out, messages io.Writer) int {
	chosen, err := parseOptions(arguments, messages)
	if err != nil {
		if !errors.Is(err, errShown) {
			fmt.Fprintln(messages, err)
		}
		return int(verify.ClassUsage)
	}
	out, messages = visible{out}, visible{messages}
	var made verdict
	switch {
	case chosen.proxy:
		made = runProxy(ctx, chosen, messages)
		if made.failure == nil {
			return 0
		}
	case chosen.fromBundle != "":
		made = verifyBundle(ctx, chosen)
	default:
		made = verifyHost(ctx, chosen)
	}
	return made.report(chosen, out, messages)
}

// verifyHost verifies over a connection of its own.
func verifyHost(ctx context.Context, chosen options) verdict {
	judge, err := newJudge(ctx, chosen)
	if err != nil {
		return refused(verdict{host: chosen.target.Host}, err)
	}
	connection, made := judge.connect(ctx)
	if connection == nil {
		return made
	}
	defer connection.Close()
	if chosen.bundle == "" {
		return made
	}
	if err := judge.bundleOf(connection, made.at).Write(chosen.bundle); err != nil && made.failure == nil {
		return refused(made, &verify.Failure{Class: verify.ClassUsage, Step: "bundle", Problem: err.Error(), Remedy: "name a file that can be written in --bundle"})
	}
	return made
}

// connect opens a connection and verifies it. The connection is nil if the document cannot be had.
func (j *judge) connect(ctx context.Context) (*enclaveconn.Connection, verdict) {
	connection, err := enclaveconn.Open(ctx, j.options.target)
	if err != nil {
		return nil, refused(j.start(time.Now()), &verify.Failure{
			Class: verify.ClassUnreachable, Step: "connect", Problem: err.Error(), Remedy: "check the host name, --service and that the container is ready",
		})
	}
	made := j.judge(presented{document: connection.Document, key: connection.Key, nonce: connection.Nonce}, time.Now())
	if len(j.options.ownNonce) > 0 {
		made.notes = append(made.notes, "the nonce is that of --nonce: only who chose it knows that the document is fresh")
	}
	return connection, made
}

// bundleOf returns everything by which a connection was verified.
func (j *judge) bundleOf(connection *enclaveconn.Connection, at time.Time) bundle.Bundle {
	made := bundle.Bundle{
		Time: at.UTC().Truncate(time.Second), Host: j.options.target.Host, Service: j.options.target.Service,
		Certificate: connection.Certificate, Nonce: fmt.Sprintf("%x", connection.Nonce), Document: connection.Document,
		ConfigFile: j.inputs.Config, HostProfile: j.inputs.HostProfile, Documents: j.inputs.Documents, Downloads: j.recorder.Kept,
	}
	if j.release != nil {
		made.Source = &bundle.Source{Repo: j.release.Repo, Tag: j.release.Tag, Commit: j.release.Commit, FileName: j.release.FileName}
	}
	return made
}
