package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"cloister.dev/guest/internal/evidence/collateral"
	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/frontdoor/apiclient"
)

const (
	firstPause      = time.Second
	longestPause    = 5 * time.Minute
	defaultPatience = 20 * time.Second
	// longestFirst is the maximum pause while there is no certificate.
	longestFirst = 30 * time.Second
	maxMessage   = 2048
	// settle is the minimum time between a certificate and the next request.
	settle = 10 * time.Second
	// spread is the fraction (1/spread) of a certificate's life over which renewals are spread.
	spread = 20
)

// runner runs the sidecar.
type runner struct {
	spec   Spec
	place  directory
	client *http.Client
	log    *slog.Logger
	now    func() time.Time
	// wait returns after a time, or earlier if the context is done.
	wait func(context.Context, time.Duration)
	// jitter returns a number from 0 to 1.
	jitter func() float64

	// failures is the number of consecutive failures.
	failures int
	// next is the time of the next request to the API.
	next time.Time
	// reported is the reason with which it last exited.
	reported string
	// notAfter is when the last certificate expires or expired; nil if there was none.
	notAfter *time.Time
}

// errPatience is returned if there was no certificate for too long.
var errPatience = errors.New("no certificate yet")

// errRenewed is returned if a certificate follows an expiry that was reported.
var errRenewed = errors.New("the certificate was renewed")

// expired is the beginning of the termination message after an expiry, which the operator reads.
const expired = "CertificateExpired: "

// Run maintains a certificate until the context is done. It returns earlier, with the
// reason as termination message, if it has had none for PatienceSeconds: the kubelet
// restarts it, and the Pod's status shows the reason. It does so once for each reason.
// An expiry is such a reason, and it also returns once a certificate follows, so that the Pod's
// status shows the expiry no longer. Only a refusal by the API is an error.
func Run(ctx context.Context, spec Spec, log *slog.Logger) error {
	client, err := apiclient.NewClient(spec.API)
	if err != nil {
		return err
	}
	if spec.Collateral != nil {
		keeper := &collateral.Keeper{
			Spec: *spec.Collateral, Client: client, At: spec.API.At, Token: spec.token,
			Path: directory(spec.Directory).path(CollateralFile), Log: log,
		}
		go keeper.Run(ctx)
	}
	err = newRunner(spec, client, log).run(ctx)
	if errors.Is(err, errPatience) || errors.Is(err, errRenewed) {
		// Not an error of ours: with exit code 0 the restart does not count as a crash.
		log.Warn("exiting, to be restarted by the kubelet", "reason", err.Error())
		return nil
	}
	return err
}

func newRunner(spec Spec, client *http.Client, log *slog.Logger) *runner {
	wait := func(ctx context.Context, pause time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	place := directory(spec.Directory)
	return &runner{spec: spec, place: place, client: client, log: log, now: time.Now, wait: wait, jitter: rand.Float64}
}

func (r *runner) run(ctx context.Context) error {
	key, err := r.place.openKey()
	if err != nil {
		return err
	}
	if status, err := strictjson.DecodeFile[Status](r.place.path(statusFile)); err == nil {
		r.reported, r.notAfter = status.Reported, status.NotAfter
	}
	if r.spec.ShimStore != "" {
		if err := r.place.linkShimStore(r.spec.ShimStore, r.spec.Hostnames); err != nil {
			return fmt.Errorf("the shim's links cannot be created: %w", err)
		}
	}
	deadline := r.now().Add(r.spec.patience())
	if leaf, err := r.place.current(key, r.spec.Hostnames, r.now()); err == nil {
		if err := r.scheduleRenewal(leaf); err != nil {
			return err
		}
	}
	for {
		r.wait(ctx, r.next.Sub(r.now()))
		if ctx.Err() != nil {
			return nil
		}
		leaf, problem := r.renew(ctx, key)
		if ctx.Err() != nil {
			return nil
		}
		if problem == nil {
			err = r.scheduleRenewal(leaf)
		} else {
			err = r.scheduleRetry(key, problem, deadline)
		}
		if err != nil {
			return err
		}
	}
}

// scheduleRenewal schedules the next request: after two thirds of the certificate's life,
// minus a random part, so that enclaves that started together do not renew together.
func (r *runner) scheduleRenewal(leaf *x509.Certificate) error {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	early := time.Duration(r.jitter() * float64(life/spread))
	r.failures, r.next = 0, leaf.NotBefore.Add(life*2/3-early)
	if soonest := r.now().Add(settle); r.next.Before(soonest) {
		r.next = soonest
	}
	r.notAfter = &leaf.NotAfter
	reported := r.reported
	if strings.HasPrefix(reported, expired) {
		r.reported = ""
	}
	if err := r.writeStatus(Status{NextAt: r.next}); err != nil {
		return err
	}
	if r.reported != reported {
		return errRenewed
	}
	return nil
}

// scheduleRetry schedules another attempt after a failure; it returns an error if there
// was no certificate for too long.
func (r *runner) scheduleRetry(key *ecdsa.PrivateKey, reason error, deadline time.Time) error {
	var said *requestError
	queued := errors.As(reason, &said) && said.queued
	leaf, missing := r.place.current(key, r.spec.Hostnames, r.now())
	r.failures++
	pause := r.pause(reason, r.failures)
	if missing != nil {
		pause = min(pause, longestFirst)
	}
	r.next = r.now().Add(pause)
	over := missing != nil && !queued && r.next.After(deadline)
	refused := said != nil && said.final
	message := reason.Error()
	if leaf != nil {
		r.notAfter = &leaf.NotAfter
	} else if r.notAfter != nil && r.now().After(*r.notAfter) {
		message = fmt.Sprintf("%sit expired at %s: %s", expired, r.notAfter.UTC().Format(time.RFC3339), message)
	}
	ends := over && (refused || message != r.reported)
	if ends {
		r.reported = message
	}
	if err := r.writeStatus(Status{Message: message, NextAt: r.next}); err != nil {
		return err
	}
	if ends {
		if refused {
			return fmt.Errorf("no certificate within %s: %w", r.spec.patience(), reason)
		}
		return fmt.Errorf("%w after %s: %w", errPatience, r.spec.patience(), reason)
	}
	return nil
}

// renew requests a certificate once and stores it.
func (r *runner) renew(ctx context.Context, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	request, err := r.place.request(key, r.spec.Hostnames)
	if err != nil {
		return nil, err
	}
	chain, err := r.requestCertificate(ctx, request)
	var said *requestError
	if errors.As(err, &said) && said.final {
		return nil, errors.Join(err, r.place.discardRequest())
	}
	if err != nil {
		return nil, err
	}
	if err := r.place.discardRequest(); err != nil {
		return nil, err
	}
	leaf, err := checkChain(chain, key, r.spec.Hostnames, r.now())
	if err != nil {
		return nil, fmt.Errorf("the API returned an unusable certificate: %w", err)
	}
	if err := r.place.write(certificateFile, chain, public); err != nil {
		return nil, fmt.Errorf("the certificate cannot be stored: %w", err)
	}
	r.log.Info("certificate", "hostnames", r.spec.Hostnames, "notAfter", leaf.NotAfter, "serial", leaf.SerialNumber.Text(16))
	return leaf, nil
}

// pause returns the exponential backoff after a number of consecutive failures, from 1.
// The API's Retry-After takes precedence; jitter spreads the enclaves of an installation.
func (r *runner) pause(err error, failures int) time.Duration {
	var said *requestError
	if errors.As(err, &said) && said.after > 0 {
		return min(said.after, longestPause) + time.Duration(r.jitter()*float64(time.Second))
	}
	longest := longestPause
	if failures < 16 {
		longest = min(longest, firstPause<<(failures-1))
	}
	return longest/2 + time.Duration(r.jitter()*float64(longest)/2)
}

// writeStatus writes the status, and the termination message for the kubelet.
func (r *runner) writeStatus(status Status) error {
	status.Version, status.Reported, status.NotAfter = Version, r.reported, r.notAfter
	if status.Message != "" {
		r.log.Warn("no new certificate", "reason", status.Message, "next", status.NextAt)
	}
	if r.spec.TerminationFile != "" {
		message := status.Message
		if len(message) > maxMessage {
			message = message[:maxMessage]
		}
		if err := os.WriteFile(r.spec.TerminationFile, []byte(message), public); err != nil {
			return err
		}
	}
	return r.place.writeStatus(status)
}

func (d Spec) patience() time.Duration {
	if d.PatienceSeconds == 0 {
		return defaultPatience
	}
	return time.Duration(d.PatienceSeconds) * time.Second
}
