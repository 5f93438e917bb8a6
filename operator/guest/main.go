// Command guest is the one binary of Cloister that works inside every enclave.
//
//	guest exec  -spec FILE   start a container's program (in front of it)
//	guest probe -spec FILE   run its health check when due (kubelet's readiness probe)
//	guest stop  -spec FILE   ask it to end (kubelet's preStop hook)
//	guest net   -plan FILE   be the network of the enclave (side-car)
//	guest net   -check FILE  tell whether the network is ready (its start-up probe)
//	guest keep  -socket FILE hold namespaces while the network starts anew (side-car)
//	guest ssh   -spec FILE   let people into a debug enclave (side-car)
//	guest models -spec FILE  check model weights and lay them out (before all containers)
//
// docs/enclave.md tells an auditor what each does with which rights.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/ending"
	"cloister.dev/guest/internal/files"
	"cloister.dev/guest/internal/first"
	"cloister.dev/guest/internal/gateway"
	"cloister.dev/guest/internal/health"
	"cloister.dev/guest/internal/keep"
	"cloister.dev/guest/internal/launch"
	"cloister.dev/guest/internal/models"
	"cloister.dev/guest/internal/plan"
	"cloister.dev/guest/internal/program"
	"cloister.dev/guest/internal/shell"
	"cloister.dev/guest/internal/sshd"
	_ "cloister.dev/guest/internal/undumpable" // acts when it is imported
)

// exitGuest is the exit code of a failure of the guest's own, as engines have it.
const exitGuest = 125

func main() {
	if err := run(os.Args[1:]); err != nil {
		name := "guest"
		if len(os.Args) > 1 {
			name += " " + os.Args[1]
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(exitCode(err))
	}
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, health.ErrUnhealthy):
		return 1
	case errors.Is(err, program.ErrNotFound):
		return program.ExitNotFound
	case errors.Is(err, program.ErrCannotRun):
		return program.ExitCannotRun
	case models.ExitCode(err) != 0:
		return models.ExitCode(err)
	}
	return exitGuest
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("say what to do: exec, probe, stop, net, keep, models or ssh")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	commands := map[string]func() error{}
	file := func(name, about string) *string { return flags.String(name, "", about) }
	switch arguments[0] {
	case "exec", "probe", "stop", health.CheckCommand:
		path := file("spec", "the container's document")
		commands["exec"] = func() error { return launch.Run(*path) }
		commands["probe"] = func() error { return health.Probe(*path) }
		commands["stop"] = func() error { return ending.Run(*path) }
		commands[health.CheckCommand] = func() error { return health.Check(*path) }
	case "net":
		path, status := file("plan", "the plan"), file("check", "the status file")
		commands["net"] = func() error { return network(*path, *status) }
	case "ssh":
		path := file("spec", "the document")
		commands["ssh"] = func() error { return serveShells(*path) }
	case shell.FirstCommand:
		path, socket := file("spec", "the container's document"), flags.Int("socket", -1, "the shell socket's descriptor")
		commands[shell.FirstCommand] = func() error { return first.Run(*path, *socket) }
	case first.FilesCommand:
		directory := file("directory", "where relative paths begin")
		commands[first.FilesCommand] = func() error { return files.Serve(*directory) }
	case "keep":
		path := file("socket", "the keeper's socket")
		commands["keep"] = func() error { return untilEnded(func(ctx context.Context) error { return keep.Run(ctx, *path) }) }
	case "models":
		path := file("spec", "what to check and where to put it")
		commands["models"] = func() error { return layModels(*path) }
	default:
		return fmt.Errorf("%q is no command; there are exec, probe, stop, net, keep, models and ssh", arguments[0])
	}
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 || flags.NFlag() != wanted(arguments[0]) {
		return errors.New("exactly one file must be named")
	}
	return commands[arguments[0]]()
}

func network(path, status string) error {
	if status != "" {
		return gateway.Check(status)
	}
	document, err := plan.Read(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return untilEnded(func(ctx context.Context) error { return gateway.Run(ctx, document, log) })
}

// wanted is the number of flags of a command: process 1 of a debug container is given its socket too.
func wanted(command string) int {
	if command == shell.FirstCommand {
		return 2
	}
	return 1
}

func serveShells(path string) error {
	document, err := sshd.Read(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return untilEnded(func(ctx context.Context) error { return sshd.Run(ctx, document, log) })
}

func layModels(path string) error {
	document, err := models.Read(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return untilEnded(func(ctx context.Context) error { return models.Run(ctx, document, log) })
}

func untilEnded(work func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	return work(ctx)
}
