package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/erofs/go-erofs"

	"cloister.dev/guest/internal/weights/verity"
)

const (
	// maxEntries is the number of files and directories that a model may have.
	maxEntries = 1 << 18
	// maxDepth is the maximum nesting of directories.
	maxDepth = 32
	// step is the number of bytes that are copied at a time.
	step = 1 << 20
	// page is the page size in bytes.
	page = 4096
	// spare is the number of bytes that the files of a model may take beyond its image:
	// small files take a page each. The operator sizes the volume accordingly.
	spare = 64 << 20
)

// errUnusable is wrapped by the errors of verified images with unsupported content.
var errUnusable = errors.New("the image is verified, but cannot be used")

// errUnwritable is wrapped by the errors of the volume that the files go to.
var errUnwritable = errors.New("its files cannot be written")

type amount struct {
	files   int
	entries int
	bytes   int64
}

// unpack writes the files of an image below a new directory. Owners, times and modes of
// the image are not kept: all users may read everything, as root may in a mount of the
// format, and nothing can be executed or written.
//
// The image is a verity.Image; room is the number of bytes that its files may take.
func unpack(ctx context.Context, image io.ReaderAt, room int64, target string) (count amount, err error) {
	defer func() {
		// The library reads verified data, so that only the packer of the image can cause this.
		if trouble := recover(); trouble != nil {
			err = fmt.Errorf("%w: its file system is broken: %v", errUnusable, trouble)
		}
	}()
	source, err := erofs.Open(image)
	if err != nil {
		return amount{}, explainUnsupported(fmt.Errorf("its superblock: %w", err))
	}
	tree, readable := source.(fs.ReadLinkFS)
	if !readable {
		return amount{}, errors.New("the file system library does not read symbolic links")
	}
	work := unpacking{ctx: ctx, source: tree, target: target, room: room, buffer: make([]byte, step)}
	if err := work.directory(".", 0); err != nil {
		return amount{}, explainUnsupported(err)
	}
	return work.count, nil
}

// explainUnsupported describes why a file system cannot be read.
func explainUnsupported(err error) error {
	switch {
	case errors.Is(err, verity.ErrInvalid), errors.Is(err, verity.ErrUnreadable):
		return err
	case errors.Is(err, erofs.ErrNotImplemented):
		return fmt.Errorf("%w: its file system is EROFS with an unsupported feature (%w); pack it without compression, as mkfs.erofs does by default", errUnusable, err)
	case errors.Is(err, errUnusable), errors.Is(err, errUnwritable), errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%w: its file system is not EROFS, or broken: %w", errUnusable, err)
}

type unpacking struct {
	ctx    context.Context
	source fs.ReadLinkFS
	target string
	room   int64
	buffer []byte
	count  amount
}

func (u *unpacking) directory(name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: its directories are nested deeper than %d", errUnusable, maxDepth)
	}
	place := filepath.Join(u.target, filepath.FromSlash(name))
	if err := os.Mkdir(place, 0o755); err != nil {
		return fmt.Errorf("%w: %w", errUnwritable, err)
	}
	entries, err := fs.ReadDir(u.source, name)
	if err != nil {
		return fmt.Errorf("directory %s: %w", name, err)
	}
	for _, entry := range entries {
		if err := u.entry(path.Join(name, entry.Name()), entry, depth); err != nil {
			return err
		}
	}
	if err := os.Chmod(place, 0o555); err != nil {
		return fmt.Errorf("%w: %w", errUnwritable, err)
	}
	return nil
}

func (u *unpacking) entry(name string, entry fs.DirEntry, depth int) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	u.count.entries++
	if u.count.entries > maxEntries {
		return fmt.Errorf("%w: it has more than %d files", errUnusable, maxEntries)
	}
	if !fs.ValidPath(name) || path.Base(name) != entry.Name() {
		return fmt.Errorf("%w: it has a file named %q", errUnusable, entry.Name())
	}
	switch entry.Type() {
	case fs.ModeDir:
		return u.directory(name, depth+1)
	case 0:
		return u.file(name)
	case fs.ModeSymlink:
		words, err := u.source.ReadLink(name)
		if err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		if err := os.Symlink(words, filepath.Join(u.target, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("%w: %w", errUnwritable, err)
		}
		return nil
	}
	return fmt.Errorf("%w: %s is neither a file nor a directory nor a symbolic link", errUnusable, name)
}

func (u *unpacking) file(name string) error {
	from, err := u.source.Open(name)
	if err != nil {
		return fmt.Errorf("file %s: %w", name, err)
	}
	defer from.Close()
	about, err := from.Stat()
	if err != nil {
		return fmt.Errorf("file %s: %w", name, err)
	}
	if u.room -= (about.Size() + page - 1) / page * page; about.Size() < 0 || u.room < 0 {
		return fmt.Errorf("%w: its files take more room than the image and %d MiB; pack it without shared blocks", errUnusable, spare>>20)
	}
	to, err := os.OpenFile(filepath.Join(u.target, filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnwritable, err)
	}
	written, err := u.copy(to, io.LimitReader(from, about.Size()))
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("file %s: %w", name, err)
	}
	if written != about.Size() {
		return fmt.Errorf("%w: file %s has %d of its %d bytes", errUnusable, name, written, about.Size())
	}
	u.count.files++
	u.count.bytes += written
	return nil
}

// copy copies a file. It checks between two steps whether the boot was stopped.
func (u *unpacking) copy(to io.Writer, from io.Reader) (int64, error) {
	written := int64(0)
	for {
		if err := u.ctx.Err(); err != nil {
			return written, err
		}
		count, err := from.Read(u.buffer)
		if count > 0 {
			if _, failed := to.Write(u.buffer[:count]); failed != nil {
				return written, fmt.Errorf("%w: %w", errUnwritable, failed)
			}
			written += int64(count)
		}
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
	}
}

// removeTree removes a directory with read-only subdirectories.
func removeTree(target string) error {
	if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := filepath.WalkDir(target, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(name, 0o755)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(target))
}
