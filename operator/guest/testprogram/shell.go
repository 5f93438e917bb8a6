package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	guest "cloister.dev/guest/internal/container/shell"
)

// shell acts as the user's shell: a line of words after -c, or lines from a terminal.
func shell() int {
	if len(os.Args) > 2 {
		words := strings.Fields(os.Args[2])
		err := syscall.Exec(words[0], words, os.Environ())
		fmt.Fprintln(os.Stderr, "testprogram:", err)
		return 127
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for range changed {
			showSize("changed")
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready", os.Getenv("TERM"))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 1 && words[0] == "size":
			showSize("size")
		case len(words) == 2 && words[0] == "exit":
			code, _ := strconv.Atoi(words[1])
			return code
		default:
			fmt.Println("read", lines.Text())
		}
	}
	return 0
}

func showSize(word string) {
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		fmt.Printf("%s %d %d\n", word, size.Col, size.Row)
	}
}

// copyInput copies its input to its output, and writes the size to the error stream.
func copyInput([]string) error {
	count, err := io.Copy(os.Stdout, os.Stdin)
	fmt.Fprintln(os.Stderr, "copied", count)
	return err
}

// left writes a line and leaves a process behind that keeps the output open.
func left([]string) error {
	fmt.Println("mine")
	child := exec.Command("/proc/self/exe", "orphan")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	return child.Start()
}

// family creates orphans repeatedly, so that process 1 inherits them; then it writes to a
// file and continues.
func family(arguments []string) error {
	for range 20 {
		child := exec.Command("/bin/testprogram", "-c", "/bin/testprogram left")
		if err := child.Run(); err != nil {
			return err
		}
	}
	if err := exec.Command("/bin/testprogram", "exit", "0").Run(); err != nil {
		return err
	}
	return trap(arguments)
}

// ask requests a shell from process 1 as the current user, and prints the response.
func ask(arguments []string) error {
	program, err := guest.Run(arguments[0], guest.Start{Command: "/bin/testprogram inspect"})
	if err != nil {
		fmt.Println(err)
		return nil
	}
	program.Close()
	return nil
}
