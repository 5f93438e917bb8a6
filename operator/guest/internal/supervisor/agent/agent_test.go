package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cloister.dev/guest/internal/foundation/report"
)

// awaitUp waits until the agent is up: its report sockets are served before its HTTP
// sockets listen.
func awaitUp(t *testing.T, probes netip.AddrPort) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("tcp", probes.String())
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the agent does not start")
		}
	}
}

// TestManyReportAtOnce has many clients use one agent at the same time, for the race
// detector. The launchers and probes are this process, process 1 is the machine's.
func TestManyReportAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: only root may report")
	}
	spec := valid()
	for place, name := range map[*string]string{&spec.SocketDirectory: "reports", &spec.Directory: "agent",
		&spec.ServiceDirectory: "service", &spec.Config: "config", &spec.TerminationFile: "termination"} {
		*place = filepath.Join(t.TempDir(), name)
	}
	for _, directory := range []string{spec.SocketDirectory, spec.Directory, spec.ServiceDirectory} {
		if err := os.Mkdir(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(spec.Config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// No client connects from this address, so that the port stays free.
	free, err := net.Listen("tcp4", "127.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spec.Probes = netip.MustParseAddrPort(free.Addr().String())
	free.Close()
	const token = "made-up"
	spec.Measurement.ConfigDigest = fmt.Sprintf("sha256:%x", sha256.Sum256(nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, spec, slog.New(slog.DiscardHandler)) }()
	awaitUp(t, spec.Probes)
	socket := filepath.Join(spec.SocketDirectory, "web", report.SocketName)
	launch, err := report.BeginLaunch(socket, report.TokenDigest(token), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	launch.Failed(errors.New("not in this test"), 125) // this closes the connection; process 1 keeps running
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(spec.Directory, httpName))
	}}}
	if _, err := report.BeginChecks(socket, "another", report.HealthReport{Status: healthHealthy}); !errors.Is(err, report.ErrRefused) {
		t.Errorf("another token is accepted: %v", err)
	}
	var all sync.WaitGroup
	for range 2 { // a container has eight connections, and a closed one counts until the agent has read its end
		all.Go(func() {
			for range 20 {
				checks, err := report.BeginChecks(socket, token, report.HealthReport{Status: healthHealthy})
				if err != nil {
					t.Error(err)
					continue
				}
				if err := checks.Report(report.HealthReport{Status: healthHealthy}); err != nil {
					t.Error(err)
				}
				checks.Close()
				<-checks.Lost()
			}
		})
		all.Go(func() {
			for _, path := range []string{"cloister-containers", "cloister-boot-stages", "cloister-metrics", "metrics", "else"} {
				response, err := client.Get("http://agent" + wellKnown + path)
				if err != nil {
					t.Error(err)
					continue
				}
				response.Body.Close()
			}
			for _, path := range []string{readyPath, healthPath + "web", healthPath + "job", "/"} {
				response, err := http.Get("http://" + spec.Probes.String() + path)
				if err != nil {
					t.Error(err)
					continue
				}
				response.Body.Close()
			}
		})
	}
	all.Wait()
	if _, err := report.BeginLaunch(socket, "", time.Now().Add(time.Minute)); err == nil {
		t.Error("a second launch of a running container is accepted")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
