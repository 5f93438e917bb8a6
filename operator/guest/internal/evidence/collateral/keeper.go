package collateral

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"cloister.dev/guest/internal/evidence/attestation"
	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/foundation/atomicfile"
)

// endpoint is the path of the API's cache.
const endpoint = "/api/shim/collateral"

const (
	// refreshEvery is the time between two requests for everything; the API has its own cache.
	refreshEvery = time.Hour
	firstRetry   = 5 * time.Second
	longestRetry = 10 * time.Minute
)

// Spec is where the processor's evidence is, which determines for which processor collateral is needed.
type Spec struct {
	// TEE is SNP or TDX.
	TEE string `json:"tee"`
	// Service is the attestation service of the machine.
	Service string `json:"service"`
}

// Validate returns an error if a field is invalid.
func (s Spec) Validate() error {
	if s.TEE != attestation.TEESNP && s.TEE != attestation.TEETDX {
		return fmt.Errorf("tee: %q is neither SNP nor TDX", s.TEE)
	}
	return attestation.CheckService(s.TEE, s.Service)
}

// Keeper keeps a file with the collateral of the machine's processor, which the API caches.
type Keeper struct {
	// Spec is where the evidence is.
	Spec Spec
	// Client reaches only the API, At returns the address of one of its paths, Token the enclave's token.
	Client *http.Client
	At     func(path string) string
	Token  func() (string, error)
	// Path is the file that is written.
	Path string
	Log  *slog.Logger

	held map[string][]byte
}

// Run keeps the file until the context is done. An enclave works without it: then the verifier fetches.
func (k *Keeper) Run(ctx context.Context) {
	pause, reported := firstRetry, ""
	for {
		err := k.refresh(ctx)
		next := refreshEvery
		if err != nil {
			next, pause = pause, min(2*pause, longestRetry)
			if err.Error() != reported {
				k.Log.Warn("collateral is missing from the attestation document", "reason", err.Error())
			}
			reported = err.Error()
		} else {
			pause, reported = firstRetry, ""
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// refresh requests all collateral and writes what there is; what cannot be had stays as it was.
func (k *Keeper) refresh(ctx context.Context) error {
	format, report, err := attestation.RawReport(ctx, k.Spec.TEE, k.Spec.Service)
	if err != nil {
		return err
	}
	list, err := requiredFor(format, report)
	if err != nil {
		return err
	}
	token, err := k.Token()
	if err != nil {
		return err
	}
	found := maps.Clone(k.held)
	if found == nil {
		found = map[string][]byte{}
	}
	var problems []error
	for _, each := range list {
		if err := k.add(ctx, found, each, token); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", each.kind, err))
		}
	}
	if !maps.EqualFunc(found, k.held, slices.Equal) {
		if err := write(k.Path, attestdoc.CollateralOf(found)); err != nil {
			return err
		}
		k.held = found
	}
	return errors.Join(problems...)
}

// add requests one piece. Body and chain belong together, so both are replaced or none.
func (k *Keeper) add(ctx context.Context, found map[string][]byte, about required, token string) error {
	address := k.At(endpoint) + "?" + url.Values{"address": {about.address}}.Encode()
	header, body, err := get(ctx, k.Client, address, token)
	if err != nil {
		return err
	}
	if about.chain != "" {
		chain, err := url.QueryUnescape(http.Header(header).Get(about.header))
		if err != nil || chain == "" {
			return fmt.Errorf("the header %s is missing", about.header)
		}
		found[about.chain] = []byte(chain)
	}
	found[about.kind] = body
	return nil
}

// write replaces the file, which the agent reads.
func write(path string, listed []attestdoc.Collateral) error {
	content, err := json.Marshal(listed)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, content, 0o444)
}
