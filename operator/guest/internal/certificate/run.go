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
	"time"

	"cloister.dev/guest/internal/apiclient"
	"cloister.dev/guest/internal/strictjson"
)

const (
	firstPause      = time.Second
	longestPause    = 5 * time.Minute
	defaultPatience = 20 * time.Second
	// longestFirst is the longest pause while there is no certificate at all.
	longestFirst = 30 * time.Second
	maxMessage   = 2048
	// settle is the least time between a certificate and the next question.
	settle = 10 * time.Second
	// spread is the part of a certificate's life by which renewals are spread.
	spread = 20
)

// runner is the side-car at work.
type runner struct {
	spec   Spec
	place  directory
	client *http.Client
	log    *slog.Logger
	now    func() time.Time
	// wait returns after a while, or earlier when the context ends.
	wait func(context.Context, time.Duration)
	// jitter answers a number from 0 to 1.
	jitter func() float64

	// failures is how often in a row there was no new certificate.
	failures int
	// next is when the API is asked next.
	next time.Time
	// told is the reason with which it ended last.
	reported string
}

// errPatience is returned when there was no certificate for too long.
var errPatience = errors.New("no certificate yet")

// Run keeps a certificate until the context ends. It ends by itself, with the
// reason as termination message, when it has had none for as long as its
// patience lasts: then it is started anew, and whoever watches the Pod reads
// the reason. It does so once for each reason. Only a refusal of the API is a
// failure.
func Run(ctx context.Context, document Spec, log *slog.Logger) error {
	client, err := apiclient.NewClient(document.API)
	if err != nil {
		return err
	}
	err = newRunner(document, client, log).run(ctx)
	if errors.Is(err, errPatience) {
		// No error of ours, and it may end: the exit code does not count as a crash.
		log.Error("started anew by the kubelet", "reason", err.Error())
		return nil
	}
	return err
}

func newRunner(document Spec, client *http.Client, log *slog.Logger) *runner {
	wait := func(ctx context.Context, pause time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	place := directory(document.Directory)
	return &runner{spec: document, place: place, client: client, log: log, now: time.Now, wait: wait, jitter: rand.Float64}
}

func (r *runner) run(ctx context.Context) error {
	key, err := r.place.openKey()
	if err != nil {
		return err
	}
	if status, err := strictjson.DecodeFile[Status](r.place.path(StatusFile)); err == nil {
		r.reported = status.Reported
	}
	if r.spec.ShimStore != "" {
		if err := r.place.linkShimStore(r.spec.ShimStore, r.spec.Hostnames); err != nil {
			return fmt.Errorf("the shim's places cannot be made: %w", err)
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

// scheduleRenewal decides when the next certificate is asked for: two thirds into the life
// of this one, a little earlier by chance, so that enclaves that started together
// do not ask together.
func (r *runner) scheduleRenewal(leaf *x509.Certificate) error {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	early := time.Duration(r.jitter() * float64(life/spread))
	r.failures, r.next = 0, leaf.NotBefore.Add(life*2/3-early)
	if soonest := r.now().Add(settle); r.next.Before(soonest) {
		r.next = soonest
	}
	return r.writeStatus(Status{NotAfter: &leaf.NotAfter, NextAt: r.next})
}

// scheduleRetry plans another attempt after one that failed; it fails itself when there
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
	ends := over && (refused || reason.Error() != r.reported)
	status := Status{Message: reason.Error(), NextAt: r.next}
	if leaf != nil {
		status.NotAfter = &leaf.NotAfter
	}
	if ends {
		r.reported = reason.Error()
	}
	if err := r.writeStatus(status); err != nil {
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

// renew asks once and keeps what comes.
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
		return nil, fmt.Errorf("the API answered what cannot be used: %w", err)
	}
	if err := r.place.write(CertificateFile, chain, public); err != nil {
		return nil, fmt.Errorf("the certificate cannot be kept: %w", err)
	}
	r.log.Info("certificate", "hostnames", r.spec.Hostnames, "notAfter", leaf.NotAfter, "serial", leaf.SerialNumber.Text(16))
	return leaf, nil
}

// pause is how long to wait after so many failures in a row, from 1. The API's
// own word counts; jitter keeps the enclaves of an installation apart.
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

// writeStatus writes the status, and what the kubelet shows when the side-car ends.
func (r *runner) writeStatus(status Status) error {
	status.Version, status.Reported = Version, r.reported
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

// Check is the side-car's start-up probe: nil when the shim can use the certificate.
func Check(file string) error {
	document, err := ReadSpec(file)
	if err != nil {
		return err
	}
	place := directory(document.Directory)
	key, err := place.key()
	if err != nil {
		return fmt.Errorf("there is no key yet: %w", err)
	}
	if _, err = place.current(key, document.Hostnames, time.Now()); err == nil {
		return nil
	}
	if status, failed := strictjson.DecodeFile[Status](place.path(StatusFile)); failed == nil && status.Message != "" {
		return fmt.Errorf("%w: %s", err, status.Message)
	}
	return err
}
