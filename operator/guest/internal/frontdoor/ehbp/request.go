package ehbp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	lengthSize = 4
	tagSize    = 16
	// maxFrame is the largest frame of a request: some clients encrypt a body as a single one.
	maxFrame = 16<<20 + tagSize
	// smallFrame is the largest frame that needs no share of the memory for frames.
	smallFrame = 4 << 10
	// maxMemory is the memory for frames of all requests. A frame takes twice its size.
	maxMemory = 48 << 20
	// memoryWait is how long a frame waits for its share.
	memoryWait = 10 * time.Second
	// A frame that has begun must arrive at frameRate bytes per second after frameGrace, since it occupies
	// memory. Between two frames a client may take its time.
	frameGrace = 10 * time.Second
	frameRate  = 64 << 10
)

// past is a deadline at which nothing can be read any more.
var past = time.Unix(1, 0)

// opener authenticates and decrypts the next frame.
type opener interface {
	Open(aad, ciphertext []byte) ([]byte, error)
}

// requestBody is the decrypted body of a request. Each frame is authenticated before a byte of it is
// read, and an end of the encrypted body within a frame is an error.
type requestBody struct {
	source io.Reader
	opener opener
	memory *semaphore.Weighted
	// deadline sets until when the source may be read; the zero time means no limit.
	deadline func(time.Time)
	ctx      context.Context
	// grace is how long a frame may take before its rate counts.
	grace time.Duration

	plain []byte
	first bool // no frame was opened yet
	seen  bool // some bytes were read

	mutex  sync.Mutex
	held   int64
	closed bool
	failed error
}

func newRequestBody(ctx context.Context, source io.Reader, opener opener, memory *semaphore.Weighted, deadline func(time.Time)) *requestBody {
	return &requestBody{ctx: ctx, source: source, opener: opener, memory: memory, deadline: deadline, grace: frameGrace, first: true}
}

// start opens the first frame. It returns io.EOF for a body without a byte.
func (b *requestBody) start() error {
	plain, err := b.next()
	if errors.Is(err, io.EOF) && b.seen {
		err = noFrame
	}
	b.plain = plain
	b.fail(err)
	return err
}

// Read reads decrypted bytes.
func (b *requestBody) Read(into []byte) (int, error) {
	for len(b.plain) == 0 {
		if err := b.failure(); err != nil {
			return 0, err
		}
		b.release()
		plain, err := b.next()
		b.plain = plain
		b.fail(err)
	}
	count := copy(into, b.plain)
	b.plain = b.plain[count:]
	if len(b.plain) == 0 {
		b.plain = nil
		b.release()
	}
	return count, nil
}

// Close gives the memory of the body back. It does not wait for what the client has not sent yet, as
// closing the source would.
func (b *requestBody) Close() error {
	b.mutex.Lock()
	b.closed = true
	b.mutex.Unlock()
	b.release()
	return nil
}

// abandon closes the body, and ends a read of the source that is under way unless that has ended.
func (b *requestBody) abandon() {
	b.Close()
	if !errors.Is(b.failure(), io.EOF) {
		b.deadline(past)
	}
}

// until sets the deadline of a body that is in use.
func (b *requestBody) until(deadline time.Time) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if !b.closed {
		b.deadline(deadline)
	}
}

// failure returns why the body ended: io.EOF at its proper end, nil before it ended.
func (b *requestBody) failure() error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.failed
}

func (b *requestBody) fail(err error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.failed == nil {
		b.failed = err
	}
}

// next reads and opens the next frame that is not empty.
func (b *requestBody) next() ([]byte, error) {
	size := uint32(0)
	for size == 0 {
		var length [lengthSize]byte
		count, err := io.ReadFull(b.source, length[:])
		b.seen = b.seen || count > 0
		if err != nil {
			return nil, reading(err, count > 0)
		}
		size = binary.BigEndian.Uint32(length[:])
	}
	switch {
	case size > maxFrame:
		return nil, bigFrame
	case size < tagSize:
		return nil, badFrame
	}
	if err := b.reserve(int64(size)); err != nil {
		return nil, err
	}
	frame, err := b.read(int(size))
	if err != nil {
		return nil, err
	}
	plain, err := b.opener.Open(nil, frame)
	if err != nil && b.first {
		return nil, staleKey
	}
	if err != nil {
		return nil, badFrame
	}
	b.first = false
	return plain, nil
}

// read reads the bytes of a frame.
func (b *requestBody) read(size int) ([]byte, error) {
	defer b.until(time.Time{})
	frame, begun := make([]byte, size), time.Now()
	for have := 0; have < size; {
		b.until(begun.Add(b.grace + time.Duration(have)*time.Second/frameRate))
		count, err := b.source.Read(frame[have:])
		have += count
		if err != nil && have < size {
			return nil, reading(err, true)
		}
	}
	return frame, nil
}

// reading returns what an error of the source means, within a frame or between two.
func reading(err error, within bool) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return slowFrame
	case errors.Is(err, io.EOF) && !within:
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return badFrame
	}
	return err
}

// reserve takes memory for a frame and what is decrypted of it.
func (b *requestBody) reserve(size int64) error {
	if size <= smallFrame {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, memoryWait)
	defer cancel()
	if err := b.memory.Acquire(ctx, 2*size); err != nil {
		return busy
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.closed {
		b.memory.Release(2 * size)
		return os.ErrClosed
	}
	b.held = 2 * size
	return nil
}

func (b *requestBody) release() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.held > 0 {
		b.memory.Release(b.held)
		b.held = 0
	}
}
