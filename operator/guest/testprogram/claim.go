package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/fdpass"
	"cloister.dev/guest/internal/foundation/report"
)

// claim forges a report of a launcher or probe to the agent, as a hostile program may.
// Arguments: the kind of message, the socket, and for each file its name and content:
// `pid:N`, or a path. It prints the response.
func claim(arguments []string) error {
	conn, err := fdpass.Dial(arguments[1], time.Now().Add(10*time.Second))
	if err != nil {
		fmt.Println("unreachable", err)
		return nil
	}
	defer conn.Close()
	message := report.Message{Kind: arguments[0], ContainerID: "../../etc"}
	if message.Kind == report.MessageHealth {
		message.Health = &report.HealthReport{Status: "healthy"}
	}
	files := []*os.File{}
	for index := 2; index+1 < len(arguments); index += 2 {
		file, err := openClaimed(arguments[index+1])
		if err != nil {
			return err
		}
		files = append(files, file)
		message.Files = append(message.Files, arguments[index])
	}
	if err := conn.Send(message, files...); err != nil {
		return err
	}
	response, _, err := fdpass.Receive[report.Response](conn)
	if err != nil {
		return err
	}
	fmt.Println(response.Kind, response.Reason)
	return nil
}

func openClaimed(text string) (*os.File, error) {
	number, isProcess := 0, false
	if len(text) > 4 && text[:4] == "pid:" {
		parsed, err := strconv.Atoi(text[4:])
		if err != nil {
			return nil, err
		}
		number, isProcess = parsed, true
	}
	if !isProcess {
		return os.Open(text)
	}
	if number == 0 {
		number = os.Getpid()
	}
	descriptor, err := unix.PidfdOpen(number, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), "process"), nil
}
