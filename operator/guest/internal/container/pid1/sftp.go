package pid1

import (
	"errors"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// ServeSFTP is `guest files`: an SFTP server on its standard streams, which process 1 of a
// debug container starts for `guest ssh`. It has the privileges of the image's program, so
// that a client reads and writes what that program could, even in images without any tool.
// It serves until the client disconnects. Relative paths start at directory.
func ServeSFTP(directory string) error {
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
