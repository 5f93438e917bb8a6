package netattach

import (
	"errors"
	"fmt"
	"os"
	"time"

	"cloister.dev/guest/internal/fdpass"
)

// Wire hands over a namespace and returns what `guest net` wants done.
//
// When the answer is AnswerJoin the returned file is the namespace to enter.
// When it is AnswerConfigure, confirm is called by the launcher after it has set
// the interfaces up; it returns once the wiring is in force. While the socket is
// absent or nobody listens, the enclave's network is starting: Wire tries until
// the deadline.
func Wire(path string, namespace *os.File, deadline time.Time) (answer Answer, join *os.File, confirm func() error, err error) {
	conn, err := fdpass.DialUntil(path, deadline)
	if err != nil {
		return Answer{}, nil, nil, fmt.Errorf("the enclave's network cannot be reached: %w", err)
	}
	answer, join, err = ask(conn, Request{Ask: AskWire}, namespace)
	if err != nil {
		conn.Close()
		return Answer{}, nil, nil, err
	}
	switch answer.Answer {
	case AnswerJoin:
		conn.Close()
		if join == nil {
			return Answer{}, nil, nil, errors.New("the enclave's network named a namespace without handing it over")
		}
		return answer, join, func() error { return nil }, nil
	case AnswerConfigure:
		return answer, nil, func() error { return confirmWired(conn) }, nil
	default:
		conn.Close()
		return Answer{}, nil, nil, fmt.Errorf("the enclave's network answered %q", answer.Answer)
	}
}

// Namespace asks for the namespace of the container that runs.
func Namespace(path string, deadline time.Time) (*os.File, error) {
	conn, err := fdpass.Dial(path, deadline)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, namespace, err := ask(conn, Request{Ask: AskNamespace}, nil)
	if err != nil {
		return nil, err
	}
	if answer.Answer != AnswerJoin || namespace == nil {
		return nil, fmt.Errorf("the enclave's network answered %q", answer.Answer)
	}
	return namespace, nil
}

func confirmWired(conn fdpass.Conn) error {
	defer conn.Close()
	answer, _, err := ask(conn, Request{Ask: AskWired}, nil)
	if err != nil {
		return err
	}
	if answer.Answer != AnswerReady {
		return fmt.Errorf("the enclave's network answered %q", answer.Answer)
	}
	return nil
}

func ask(conn fdpass.Conn, request Request, namespace *os.File) (Answer, *os.File, error) {
	if err := conn.Send(request, namespace); err != nil {
		return Answer{}, nil, fmt.Errorf("the enclave's network cannot be asked: %w", err)
	}
	answer, received, err := fdpass.Receive[Answer](conn)
	if err != nil {
		return Answer{}, nil, fmt.Errorf("the enclave's network did not answer: %w", err)
	}
	if answer.Answer == AnswerRefused {
		if received != nil {
			received.Close()
		}
		return Answer{}, nil, fmt.Errorf("%w: %s", ErrRefused, answer.Reason)
	}
	return answer, received, nil
}
