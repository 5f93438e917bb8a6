package netattach

import (
	"errors"
	"fmt"
	"os"
	"time"

	"cloister.dev/guest/internal/foundation/fdpass"
)

// Attach sends a network namespace and returns the response of `guest net`.
//
// For ResponseJoin the returned file is the namespace to enter. For ResponseConfigure the
// launcher calls confirm after it has configured the interfaces; it returns once the
// namespace is attached. While the socket is absent or has no listener, the enclave's
// network is starting: Attach retries until the deadline.
func Attach(path string, namespace *os.File, deadline time.Time) (response Response, join *os.File, confirm func() error, err error) {
	conn, err := fdpass.DialUntil(path, deadline)
	if err != nil {
		return Response{}, nil, nil, fmt.Errorf("the enclave's network cannot be reached: %w", err)
	}
	response, join, err = exchange(conn, Request{Kind: RequestAttach}, namespace)
	if err != nil {
		conn.Close()
		return Response{}, nil, nil, err
	}
	switch response.Kind {
	case ResponseJoin:
		conn.Close()
		if join == nil {
			return Response{}, nil, nil, errors.New("the enclave's network responded with a namespace but did not send it")
		}
		return response, join, func() error { return nil }, nil
	case ResponseConfigure:
		return response, nil, func() error { return confirmAttached(conn) }, nil
	default:
		conn.Close()
		return Response{}, nil, nil, fmt.Errorf("the enclave's network responded %q", response.Kind)
	}
}

func confirmAttached(conn fdpass.Conn) error {
	defer conn.Close()
	response, _, err := exchange(conn, Request{Kind: RequestAttached}, nil)
	if err != nil {
		return err
	}
	if response.Kind != ResponseReady {
		return fmt.Errorf("the enclave's network responded %q", response.Kind)
	}
	return nil
}

func exchange(conn fdpass.Conn, request Request, namespace *os.File) (Response, *os.File, error) {
	if err := conn.Send(request, namespace); err != nil {
		return Response{}, nil, fmt.Errorf("the request to the enclave's network cannot be sent: %w", err)
	}
	response, received, err := fdpass.Receive[Response](conn)
	if err != nil {
		return Response{}, nil, fmt.Errorf("the enclave's network did not respond: %w", err)
	}
	if response.Kind == ResponseRefused {
		if received != nil {
			received.Close()
		}
		return Response{}, nil, fmt.Errorf("%w: %s", ErrRefused, response.Reason)
	}
	return response, received, nil
}
