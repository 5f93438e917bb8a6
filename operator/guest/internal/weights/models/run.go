package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/weights/verity"
)

// Exit codes, as in sysexits(3): from them the operator derives the reason.
const (
	// exitInvalid means that an image is not the one that the file names.
	exitInvalid = 65
	// exitMissing means that the store does not have an image.
	exitMissing = 66
)

// ErrMissing is wrapped by the error of an image that is not in the store.
var ErrMissing = errors.New("the model store does not have it")

// ExitCode returns the exit code of an error of Run; 0 leaves it to the caller.
func ExitCode(err error) int {
	switch {
	case errors.Is(err, ErrMissing):
		return exitMissing
	case errors.Is(err, verity.ErrInvalid), errors.Is(err, errUnusable):
		return exitInvalid
	}
	return 0
}

// Reasons of a failure, among the operator's documented reasons.
const (
	reasonInvalid = "ModelInvalid"
	reasonMissing = "ModelNotFound"
)

func reasonOf(err error) string {
	switch ExitCode(err) {
	case exitInvalid:
		return reasonInvalid
	case exitMissing:
		return reasonMissing
	}
	return ""
}

// States of the work.
const (
	// StateRunning means that models are being checked.
	StateRunning = "running"
	// stateOK means that all are unpacked.
	stateOK = "ok"
	// StateFailed means that one failed, and that no container starts.
	StateFailed = "failed"
)

// Status is the status file. It is replaced atomically.
type Status struct {
	// State is StateRunning, stateOK or StateFailed.
	State string `json:"state"`
	// StartedAt and EndedAt are times in UTC; EndedAt is nil while it runs.
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt"`
	// Reason is ModelInvalid or ModelNotFound; empty for another failure or none.
	Reason string `json:"reason"`
	// Message describes the failure in one sentence; empty if there is none.
	Message string `json:"message"`
	// Models are the unpacked models.
	Models []Mounted `json:"models"`
}

// Mounted is a model that was verified and unpacked.
type Mounted struct {
	// Name is its name in the configuration file.
	Name string `json:"name"`
	// RootHash is the root hash against which it was verified.
	RootHash string `json:"rootHash"`
	// Files and Bytes are the number and total size of its files.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Seconds is the duration.
	Seconds float64 `json:"seconds"`
}

// Run verifies and unpacks the models of a spec. On an error, the directory of the failed
// model has been removed.
func Run(ctx context.Context, spec Spec, log *slog.Logger) error {
	status := Status{State: StateRunning, StartedAt: time.Now().UTC(), Models: []Mounted{}}
	if err := status.write(spec.Status); err != nil {
		return err
	}
	err := func() error {
		for _, model := range spec.Models {
			mounted, err := layOut(ctx, spec, model)
			if err != nil {
				return fmt.Errorf("model %s (%s): %w", model.Name, model.Repo, err)
			}
			log.Info("checked a model", "name", mounted.Name, "files", mounted.Files, "bytes", mounted.Bytes, "seconds", mounted.Seconds)
			status.Models = append(status.Models, mounted)
			if err := status.write(spec.Status); err != nil {
				return err
			}
		}
		return nil
	}()
	ended := time.Now().UTC()
	status.State, status.EndedAt = stateOK, &ended
	if err != nil {
		status.State, status.Reason, status.Message = StateFailed, reasonOf(err), err.Error()
	}
	return errors.Join(err, status.write(spec.Status))
}

// layOut verifies one model and writes its files.
func layOut(ctx context.Context, spec Spec, model Model) (Mounted, error) {
	reference, err := verity.ParseReference(model.MPK)
	if err != nil {
		return Mounted{}, err
	}
	hash := fmt.Sprintf("%x", reference.Root)
	file, err := openImage(filepath.Join(spec.Store, hash+".mpk"))
	if err != nil {
		return Mounted{}, err
	}
	defer file.Close()
	started := time.Now()
	image, err := verity.Open(file, reference, model.salt())
	if err != nil {
		return Mounted{}, err
	}
	target := filepath.Join(spec.Target, "mpk-"+hash)
	// Remove what an earlier attempt of this container left.
	if err := removeTree(target); err != nil {
		return Mounted{}, err
	}
	count, err := unpack(ctx, image, image.Size()+spare, target)
	if err == nil {
		err = image.CheckRest(ctx)
	}
	if err != nil {
		return Mounted{}, errors.Join(err, removeTree(target))
	}
	return Mounted{
		Name: model.Name, RootHash: hash, Files: count.files, Bytes: count.bytes,
		Seconds: time.Since(started).Seconds(),
	}, nil
}

// source is a file in the store or a block device.
type source interface {
	io.ReaderAt
	io.Closer
}

func openImage(path string) (source, error) {
	// Without O_NONBLOCK a pipe in the store would block the boot.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing; put the image into the store of the Host", ErrMissing, filepath.Base(path))
	}
	if err != nil {
		return nil, fmt.Errorf("the image cannot be opened: %w", err)
	}
	about, err := file.Stat()
	if err == nil && about.IsDir() {
		err = errors.New("it is a directory")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the image cannot be opened: %w", err), file.Close())
	}
	return file, nil
}

// ReadStatus reads a status file.
func ReadStatus(path string) (Status, error) { return strictjson.DecodeFile[Status](path) }

// write replaces the status file.
func (s Status) write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return fmt.Errorf("the status cannot be written: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("the status cannot be written: %w", err)
	}
	return nil
}
