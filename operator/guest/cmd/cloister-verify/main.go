// Command cloister-verify checks an enclave's attestation on a TLS connection of its own.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/collateral"
	"cloister.dev/guest/internal/strictjson"
	"cloister.dev/guest/internal/verify"
)

const usage = "cloister-verify [options] --measurement sha256:… --platform HEX[,HEX…] HOST[:PORT]"

const timeout = 30 * time.Second

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code: 0 if verified, else the class of the failure.
func run(arguments []string, out, messages io.Writer) int {
	flags := flag.NewFlagSet("cloister-verify", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() { fmt.Fprintln(messages, usage); flags.PrintDefaults() }
	measurement := flags.String("measurement", "", "digest of the measurement document, from `cloister config measure`")
	platform := flags.String("platform", "", "trusted launch measurements, in hexadecimal digits, separated by commas")
	service := flags.String("service", "cloister", "service name of the installation")
	asJSON := flags.Bool("json", false, "write the verdict as JSON")
	skipRevocation := flags.Bool("insecure-skip-revocation", false, "check no revocation lists")
	if err := flags.Parse(arguments); err != nil {
		return int(verify.ClassUsage)
	}
	err := errors.New(usage)
	want, problem := expectation(*measurement, *platform)
	switch {
	case problem != nil:
		err = problem
	case flags.NArg() == 1:
		want.Fetch, want.InsecureSkipRevocation = collateral.FromMakers, *skipRevocation
		err = check(flags.Arg(0), *service, want)
		return report(err, *asJSON, out, messages)
	}
	fmt.Fprintln(messages, err)
	return int(verify.ClassUsage)
}

func expectation(measurement, platform string) (verify.Expected, error) {
	var want verify.Expected
	digest, err := hex.DecodeString(strings.TrimPrefix(measurement, "sha256:"))
	if err != nil || len(digest) != sha256.Size {
		return want, errors.New("--measurement: not sha256: and 64 hexadecimal digits; compute it with `cloister config measure`")
	}
	copy(want.Measurement[:], digest)
	for text := range strings.SplitSeq(platform, ",") {
		launch, err := hex.DecodeString(text)
		if err != nil || len(launch) != 48 {
			return want, fmt.Errorf("--platform: %q is not 96 hexadecimal digits; name the launch measurements that you trust", text)
		}
		want.Launch = append(want.Launch, launch)
	}
	return want, nil
}

// check requests the document and checks it against the key of the same connection.
func check(host, service string, want verify.Expected) error {
	want.Nonce = make([]byte, attestdoc.NonceSize)
	_, _ = rand.Read(want.Nonce) // never fails
	want.Now = time.Now()
	document, key, err := fetch(host, service, want.Nonce)
	if err != nil {
		return &verify.Failure{Class: verify.ClassUnreachable, Step: "connect", Problem: err.Error(), Remedy: "check the host name, --service and that the container is ready"}
	}
	want.Key = key
	return verify.Check(document, want)
}

// fetch returns the document and the fingerprint of the key of the connection that it came
// by. Names of certificates prove nothing here: the evidence binds the key itself.
func fetch(host, service string, nonce []byte) ([]byte, [sha256.Size]byte, error) {
	var key [sha256.Size]byte
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	address := "https://" + host + "/.well-known/" + service + "-attestation?nonce=" + hex.EncodeToString(nonce)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, key, err
	}
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return nil, key, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, key, fmt.Errorf("the enclave responds with %s", response.Status)
	}
	document, err := io.ReadAll(io.LimitReader(response.Body, strictjson.MaxDocument+1))
	return document, sha256.Sum256(response.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo), err
}

// report writes the verdict and returns the exit code. Whatever error there is refuses.
func report(err error, asJSON bool, out, messages io.Writer) int {
	var failure *verify.Failure
	if err != nil && !errors.As(err, &failure) {
		failure = &verify.Failure{Class: verify.ClassDocument, Step: "document", Problem: err.Error(), Remedy: "trust nothing that this enclave says"}
	}
	code := 0
	if failure != nil {
		code = int(failure.Class)
	}
	switch {
	case asJSON:
		_ = json.NewEncoder(out).Encode(map[string]any{"verified": failure == nil, "failure": failure})
	case failure == nil:
		fmt.Fprintln(out, "verified: signature, launch measurement, TLS key, nonce, measurement and initdata; see docs/verify.md for what that does not prove")
	default:
		fmt.Fprintln(messages, failure)
	}
	return code
}
