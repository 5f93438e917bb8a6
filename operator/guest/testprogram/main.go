// Command testprogram is the program of the guest's tests: it acts as container runtime,
// and as the tenant's program, honest or hostile. It is not part of the product.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if strings.HasPrefix(os.Args[0], "-") || len(os.Args) > 2 && os.Args[1] == "-c" {
		os.Exit(shell())
	}
	commands := map[string]func([]string) error{
		"pause": pause, "serve": serve, "reach": reach, "container": runContainer, "init": initContainer,
		"confined": confined, "escapes": escapes, "inspect": inspect, "exit": exit, "trap": trap, "lookup": lookup,
		"orphan": orphan, "write": write, "fail": fail, "hostile": hostile, "route": route, "alive": alive, "holder": holder, "parent": parent,
		"copy": copyInput, "ask": ask, "left": left, "lookups": lookups, "family": family, "claim": claim, "busy": busy, "multiply": multiply,
		"shim": shim, "status": status, "steal": steal, "present": present, "print": printMuch,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "testprogram: no such command")
		os.Exit(64)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "testprogram:", err)
		os.Exit(65)
	}
}

// pause runs until it is killed.
func pause([]string) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM)
	<-ended
	return nil
}

// printMuch prints more than a pipe holds to both streams, and then writes a file.
func printMuch(arguments []string) error {
	text := strings.Repeat("secret ", 1<<17)
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		if _, err := stream.WriteString(text); err != nil {
			return err
		}
	}
	return os.WriteFile(arguments[0], []byte("printed"), 0o644)
}

// present fails unless a file exists.
func present(arguments []string) error {
	_, err := os.Stat(arguments[0])
	return err
}

func reap(child int) error {
	_, err := unix.Wait4(child, nil, 0, nil)
	return err
}

// multiply starts processes until the kernel refuses one or there are as many as its first
// argument says, shows how many it started and why it stopped, and keeps most of them and itself.
func multiply(arguments []string) error {
	most, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	type result struct {
		Started int
		Refused string
	}
	var done result
	var last []int
	for done.Started < most && done.Refused == "" {
		// A plain fork: the threads of a Go program would count too.
		child, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0:
			done.Refused = errno.Error()
		case child == 0:
			for {
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		default:
			done.Started++
			last = append(last, int(child))
		}
	}
	// The runtime of Go exits when it cannot start a thread.
	for _, child := range last[max(0, len(last)-8):] {
		if err := errors.Join(unix.Kill(child, unix.SIGKILL), reap(child)); err != nil {
			return err
		}
	}
	text, err := json.Marshal(done)
	if err != nil {
		return err
	}
	if len(arguments) > 1 {
		err = write([]string{arguments[1], string(text)})
	} else {
		_, err = fmt.Println(string(text))
	}
	if err != nil {
		return err
	}
	return pause(nil)
}

// busy keeps a CPU busy.
func busy([]string) error {
	for number := 0; ; number++ {
		_ = number
	}
}

// exit writes on both streams and exits with a code.
func exit(arguments []string) error {
	fmt.Println("to stdout")
	fmt.Fprintln(os.Stderr, "to stderr")
	code, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

// fail writes long output and fails.
func fail([]string) error {
	for range 4096 {
		fmt.Println("0123456789")
	}
	os.Exit(3)
	return nil
}

// write writes a line to a file.
func write(arguments []string) error {
	return os.WriteFile(arguments[0], []byte(arguments[1]), 0o644)
}

// trap writes "ready" to a file, and exits with the number of a received signal plus 100.
func trap(arguments []string) error {
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGTERM, unix.SIGUSR1, unix.SIGINT)
	if err := write([]string{arguments[0], "ready"}); err != nil {
		return err
	}
	number, _ := (<-got).(unix.Signal)
	os.Exit(100 + int(number))
	return nil
}

// orphan ignores the usual signals and runs for long.
func orphan(arguments []string) error {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGUSR1)
	if len(arguments) > 0 {
		if err := write([]string{arguments[0], strconv.Itoa(os.Getpid())}); err != nil {
			return err
		}
	}
	time.Sleep(time.Hour)
	return nil
}

// parent starts an orphan and ignores the usual signals; it leaves no zombie.
func parent(arguments []string) error {
	child := exec.Command("/proc/self/exe", "orphan", arguments[0])
	if err := child.Start(); err != nil {
		return err
	}
	go func() { _ = child.Wait() }()
	return orphan(nil)
}

// alive exits with 0 if a process exists and is not a zombie, else with 1.
func alive(arguments []string) error {
	stat, err := os.ReadFile("/proc/" + arguments[0] + "/stat")
	if err != nil || strings.Contains(string(stat), ") Z ") {
		os.Exit(1)
	}
	return nil
}

func show(value any) error { return json.NewEncoder(os.Stdout).Encode(value) }
