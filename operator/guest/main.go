// Command guest is the one binary of Cloister that runs inside every enclave.
//
//	guest keep    -socket FILE -evidence URL|none  install the measurement, then store file descriptors
//	                           over restarts of net and agent (sidecar)
//	guest install DIR          copy itself there, for the containers (postStart hook of keep)
//	guest models  -spec FILE   verify model weights and unpack them (before all containers)
//	guest net     -plan FILE   run the network of the enclave
//	guest agent   -spec FILE   track and report what runs, and respond to the kubelet's probes
//	guest certificate -spec FILE  generate the TLS key and maintain its certificate
//	guest gate    -spec FILE   check API keys and rates for the shim
//	guest ehbp    -spec FILE   decrypt and encrypt bodies for the shim
//	guest ssh     -spec FILE   SSH server of a debug enclave
//	guest exec    -spec FILE   start a container's program (as its entrypoint)
//	guest stop    -spec FILE   stop it (the kubelet's preStop hook)
//
// It calls itself with further commands, such as the checker that `guest exec` starts next to a program
// which has a health check.
//
// docs/enclave.md describes for an auditor what each does with which privileges.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/container/health"
	"cloister.dev/guest/internal/container/launch"
	"cloister.dev/guest/internal/container/pid1"
	"cloister.dev/guest/internal/container/prestop"
	"cloister.dev/guest/internal/container/shell"
	"cloister.dev/guest/internal/container/sshd"
	"cloister.dev/guest/internal/foundation/entrypoint"
	"cloister.dev/guest/internal/foundation/fdstore"
	"cloister.dev/guest/internal/foundation/measured"
	"cloister.dev/guest/internal/foundation/quiet"
	_ "cloister.dev/guest/internal/foundation/undumpable" // acts in its init function
	"cloister.dev/guest/internal/frontdoor/certificate"
	"cloister.dev/guest/internal/frontdoor/ehbp"
	"cloister.dev/guest/internal/frontdoor/forwardauth"
	"cloister.dev/guest/internal/network/netplan"
	"cloister.dev/guest/internal/network/network"
	"cloister.dev/guest/internal/supervisor/agent"
	"cloister.dev/guest/internal/supervisor/install"
	"cloister.dev/guest/internal/weights/models"
)

// command is one command of the guest.
type command struct {
	// by maps the flag that must be given to its function; with an empty name the value
	// follows the command.
	by map[string]func(value string) error
	// internal is the function of a command that the guest itself calls, with all flags in with.
	with     []string
	internal func(values map[string]string) error
}

var commands = map[string]command{
	"install":             {by: map[string]func(string) error{"": install.Run}},
	"exec":                {by: map[string]func(string) error{"spec": launch.Run}},
	"stop":                {by: map[string]func(string) error{"spec": prestop.Run}},
	"net":                 {by: map[string]func(string) error{"plan": runNetwork}},
	"keep":                {with: []string{"socket", "evidence"}, internal: runFDStore},
	"agent":               {by: map[string]func(string) error{"spec": runAgent}},
	"certificate":         {by: map[string]func(string) error{"spec": runCertificate}},
	"gate":                {by: map[string]func(string) error{"spec": runForwardAuth}},
	"ehbp":                {by: map[string]func(string) error{"spec": runBodies}},
	"models":              {by: map[string]func(string) error{"spec": runModels}},
	"ssh":                 {by: map[string]func(string) error{"spec": runSSH}},
	launch.CheckerCommand: {with: []string{"spec", "socket"}, internal: runChecker},
	health.CheckCommand:   {by: map[string]func(string) error{"spec": health.BecomeTest}},
	pid1.SFTPCommand:      {by: map[string]func(string) error{"directory": pid1.ServeSFTP}},
	shell.PID1Command:     {with: []string{"spec", "socket"}, internal: runPID1},
}

func main() {
	err := quiet.DiscardHiddenOutput()
	if err == nil {
		err = run(os.Args[1:])
	}
	if err != nil {
		name := "guest"
		if len(os.Args) > 1 {
			name += " " + os.Args[1]
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(exitCode(err))
	}
}

func exitCode(err error) int {
	if errors.Is(err, agent.ErrBootFailed) {
		return 1
	}
	if errors.Is(err, measured.ErrNotMeasured) {
		return measured.ExitCode
	}
	if code := models.ExitCode(err); code != 0 {
		return code
	}
	return entrypoint.ExitCode(err)
}

func run(arguments []string) error {
	known := strings.Join(slices.Sorted(maps.Keys(commands)), ", ")
	if len(arguments) == 0 {
		return fmt.Errorf("no command given; use one of %s", known)
	}
	chosen, found := commands[arguments[0]]
	if !found {
		return fmt.Errorf("%q is not a command; use one of %s", arguments[0], known)
	}
	if follows := chosen.by[""]; follows != nil {
		if len(arguments) != 2 {
			return errors.New("exactly one directory must be given")
		}
		return follows(arguments[1])
	}
	values, err := parse(arguments[0], slices.Concat(slices.Collect(maps.Keys(chosen.by)), chosen.with), arguments[1:])
	if err != nil {
		return err
	}
	if chosen.internal != nil {
		if len(values) != len(chosen.with) {
			return fmt.Errorf("needs %s", strings.Join(chosen.with, " and "))
		}
		return chosen.internal(values)
	}
	if len(values) != 1 {
		return errors.New("exactly one file must be given")
	}
	for name, value := range values {
		err = chosen.by[name](value)
	}
	return err
}

// parse reads flags and returns those that were given.
func parse(name string, known, arguments []string) (map[string]string, error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for _, one := range known {
		flags.String(one, "", "")
	}
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	values := map[string]string{}
	flags.Visit(func(given *flag.Flag) { values[given.Name] = given.Value.String() })
	return values, nil
}

func runPID1(values map[string]string) error { return withSocket(values, pid1.Run) }

func runChecker(values map[string]string) error { return withSocket(values, health.Run) }

// withSocket runs a command that inherits a socket.
func withSocket(values map[string]string, command func(path string, socket int) error) error {
	socket, err := strconv.Atoi(values["socket"])
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	return command(values["spec"], socket)
}

func runNetwork(path string) error {
	plan, err := netplan.Read(path)
	if err != nil {
		return err
	}
	return afterContainers(plan.FDStoreSocket, func(ctx context.Context) error { return network.Run(ctx, plan, logger()) })
}

func runFDStore(values map[string]string) error {
	return untilTerminated(func(ctx context.Context) error {
		if err := install.Measurement(ctx, values["evidence"]); err != nil {
			return err
		}
		return fdstore.Run(ctx, values["socket"])
	})
}

func runAgent(path string) error {
	spec, err := agent.ReadSpec(path)
	if err != nil {
		return err
	}
	return afterContainers(spec.FDStoreSocket, func(ctx context.Context) error { return agent.Run(ctx, spec, logger()) })
}

func runForwardAuth(path string) error {
	spec, err := forwardauth.ReadSpec(path)
	if err != nil {
		return err
	}
	return untilTerminated(func(ctx context.Context) error { return forwardauth.Run(ctx, spec, logger()) })
}

func runBodies(path string) error {
	spec, err := ehbp.ReadSpec(path)
	if err != nil {
		return err
	}
	return untilTerminated(func(ctx context.Context) error { return ehbp.Run(ctx, spec) })
}

func runSSH(path string) error {
	spec, err := sshd.ReadSpec(path)
	if err != nil {
		return err
	}
	return untilTerminated(func(ctx context.Context) error { return sshd.Run(ctx, spec, logger()) })
}

func runModels(path string) error {
	spec, err := models.ReadSpec(path)
	if err != nil {
		return err
	}
	return untilTerminated(func(ctx context.Context) error { return models.Run(ctx, spec, logger()) })
}

func logger() *slog.Logger { return slog.New(slog.NewJSONHandler(os.Stderr, nil)) }

func runCertificate(path string) error {
	spec, err := certificate.ReadSpec(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return untilTerminated(func(ctx context.Context) error { return certificate.Run(ctx, spec, log) })
}

// afterContainers is untilTerminated for what the containers need until they have ended: the kubelet
// terminates all containers of a Pod at the same time.
func afterContainers(fdStore string, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	terminated, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	context.AfterFunc(terminated, func() {
		if ctx.Err() == nil && fdStore != "" {
			fdstore.AwaitContainers(fdStore)
		}
		cancel()
	})
	return work(ctx)
}

func untilTerminated(work func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	return work(ctx)
}
