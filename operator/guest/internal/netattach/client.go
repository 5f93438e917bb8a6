package netattach

import (
	"errors"
	"fmt"
	"os"
	"time"

	"cloister.dev/guest/internal/fdpass"
)

// Attach hands over a namespace and returns what `guest net` wants done.
//
// When the answer is AnswerJoin the returned file is the namespace to enter.
// When it is AnswerConfigure, confirm is called by the launcher after it has set
// the interfaces up; it returns once the wiring is in force. While the socket is
// absent or nobody listens, the enclave's network is starting: Wire tries until
// the deadline.
func Attach(path string, namespace *os.File, deadline time.Time) (answer Response, join *os.File, confirm func() error, err error) {
	conn, err := fdpass.DialUntil(path, deadline)
	if err != nil {
		return Response{}, nil, nil, fmt.Errorf("the enclave's network cannot be reached: %w", err)
	}
	answer, join, err = exchange(conn, Request{Kind: RequestAttach}, namespace)
	if err != nil {
		conn.Close()
		return Response{}, nil, nil, err
	}
	switch answer.Kind {
	case ResponseJoin:
		conn.Close()
		if join == nil {
			return Response{}, nil, nil, errors.New("the enclave's network named a namespace without handing it over")
		}
		return answer, join, func() error { return nil }, nil
	case ResponseConfigure:
		return answer, nil, func() error { return confirmAttached(conn) }, nil
	default:
		conn.Close()
		return Response{}, nil, nil, fmt.Errorf("the enclave's network answered %q", answer.Kind)
	}
}

// Namespace asks for the namespace of the container that runs.
func Namespace(path string, deadline time.Time) (*os.File, error) {
	conn, err := fdpass.Dial(path, deadline)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, namespace, err := exchange(conn, Request{Kind: RequestNamespace}, nil)
	if err != nil {
		return nil, err
	}
	if answer.Kind != ResponseJoin || namespace == nil {
		return nil, fmt.Errorf("the enclave's network answered %q", answer.Kind)
	}
	return namespace, nil
}

func confirmAttached(conn fdpass.Conn) error {
	defer conn.Close()
	answer, _, err := exchange(conn, Request{Kind: RequestAttached}, nil)
	if err != nil {
		return err
	}
	if answer.Kind != ResponseReady {
		return fmt.Errorf("the enclave's network answered %q", answer.Kind)
	}
	return nil
}

func exchange(conn fdpass.Conn, request Request, namespace *os.File) (Response, *os.File, error) {
	if err := conn.Send(request, namespace); err != nil {
		return Response{}, nil, fmt.Errorf("the enclave's network cannot be asked: %w", err)
	}
	answer, received, err := fdpass.Receive[Response](conn)
	if err != nil {
		return Response{}, nil, fmt.Errorf("the enclave's network did not answer: %w", err)
	}
	if answer.Kind == ResponseRefused {
		if received != nil {
			received.Close()
		}
		return Response{}, nil, fmt.Errorf("%w: %s", ErrRefused, answer.Reason)
	}
	return answer, received, nil
}
