// Package sftpserver is `guest files`: a server of the SFTP protocol on its standard
// streams, which process 1 of a debug container starts for `guest ssh`. It has the
// rights of the image's program, so that a client sees and writes what that
// program could, in images without any tool as well.
package sftpserver

import (
	"errors"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// Serve serves until the client has gone. Parameter directory is where relative paths begin.
func Serve(directory string) error {
	server, err := sftp.NewServer(streams{os.Stdin, os.Stdout}, sftp.WithServerWorkingDirectory(directory))
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

type streams struct {
	io.Reader
	io.WriteCloser
}
