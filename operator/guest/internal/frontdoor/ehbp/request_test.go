package ehbp

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sync/semaphore"
)

// bodyOf returns the body of a request to an identity.
func bodyOf(t testing.TB, to identity, from *client, text io.Reader) *requestBody {
	t.Helper()
	recipient, err := to.recipient(from.encapsulated)
	if err != nil {
		t.Fatal(err)
	}
	memory := semaphore.NewWeighted(maxMemory)
	body := newRequestBody(t.Context(), text, recipient, memory, func(time.Time) {})
	t.Cleanup(func() {
		body.Close()
		if !memory.TryAcquire(maxMemory) {
			t.Error("memory was not given back")
		}
	})
	return body
}

func identityOf(t testing.TB) identity {
	t.Helper()
	made, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func length(size uint32) []byte { return binary.BigEndian.AppendUint32(nil, size) }

func TestABodyIsDecrypted(t *testing.T) {
	large := strings.Repeat("x", maxFrame-tagSize)
	for name, plain := range map[string][]string{
		"one frame": {"hello"}, "frames": {"a", "bc", "def"}, "an empty frame among others": {"a", "", "b"},
		"the largest frame": {large}, "two of the largest": {large, large},
	} {
		t.Run(name, func(t *testing.T) {
			to := identityOf(t)
			from := newClient(t, to.public())
			text := slices.Concat(length(0), from.frames(plain...), length(0))
			body := bodyOf(t, to, from, bytes.NewReader(text))
			if err := body.start(); err != nil {
				t.Fatal(err)
			}
			found, err := io.ReadAll(body)
			if err != nil || string(found) != strings.Join(plain, "") {
				t.Errorf("%d bytes, %v", len(found), err)
			}
		})
	}
}

func TestFramesThatAreCutDifferentlyOnTheirWay(t *testing.T) {
	to := identityOf(t)
	from := newClient(t, to.public())
	body := bodyOf(t, to, from, iotest.OneByteReader(bytes.NewReader(from.frames("hello", " ", "world"))))
	if err := body.start(); err != nil {
		t.Fatal(err)
	}
	if found, err := io.ReadAll(body); err != nil || string(found) != "hello world" {
		t.Errorf("%q %v", found, err)
	}
}

func TestABodyWithoutFrames(t *testing.T) {
	to := identityOf(t)
	for text, want := range map[string]error{"": io.EOF, string(length(0)): noFrame, strings.Repeat("\x00", 40): noFrame} {
		from := newClient(t, to.public())
		if err := bodyOf(t, to, from, strings.NewReader(text)).start(); !errors.Is(err, want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDamagedBodiesAreRefused damages a body of three frames: what comes before the damage is the most
// that a container gets, and never an end.
func TestDamagedBodiesAreRefused(t *testing.T) {
	type damage func(from *client, frames [][]byte) [][]byte
	changed := func(frame []byte) []byte {
		frame = bytes.Clone(frame)
		frame[len(frame)-1] ^= 1
		return frame
	}
	for name, each := range map[string]struct {
		damage damage
		want   error
		before string
	}{
		"first frame changed":    {func(_ *client, f [][]byte) [][]byte { f[0] = changed(f[0]); return f }, staleKey, ""},
		"first frame missing":    {func(_ *client, f [][]byte) [][]byte { return f[1:] }, staleKey, ""},
		"for another key":        {func(c *client, _ [][]byte) [][]byte { return newClient(c.t, identityOf(c.t).public()).each("x") }, staleKey, ""},
		"second frame changed":   {func(_ *client, f [][]byte) [][]byte { f[1] = changed(f[1]); return f }, badFrame, "one"},
		"second frame missing":   {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0], f[2]} }, badFrame, "one"},
		"frames exchanged":       {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0], f[2], f[1]} }, badFrame, "one"},
		"frame sent twice":       {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0], f[1], f[1]} }, badFrame, "onetwo"},
		"first frame sent again": {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0], f[1], f[2], f[0]} }, badFrame, "onetwothree"},
		"of another request": {func(c *client, f [][]byte) [][]byte {
			return [][]byte{f[0], newClient(c.t, identityOf(c.t).public()).frame("x")}
		}, badFrame, "one"},
		"cut within a length":     {func(_ *client, f [][]byte) [][]byte { f[2] = f[2][:3]; return f }, badFrame, "onetwo"},
		"cut after a length":      {func(_ *client, f [][]byte) [][]byte { f[2] = f[2][:4]; return f }, badFrame, "onetwo"},
		"cut within a frame":      {func(_ *client, f [][]byte) [][]byte { f[2] = f[2][:9]; return f }, badFrame, "onetwo"},
		"cut in the first frame":  {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0][:9]} }, badFrame, ""},
		"a byte after the end":    {func(_ *client, f [][]byte) [][]byte { return append(f, []byte{0}) }, badFrame, "onetwothree"},
		"shorter than a tag":      {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0], append(length(15), f[1]...)} }, badFrame, "one"},
		"larger than allowed":     {func(_ *client, f [][]byte) [][]byte { return [][]byte{f[0], length(maxFrame + 1)} }, bigFrame, "one"},
		"as large as can be said": {func(_ *client, _ [][]byte) [][]byte { return [][]byte{length(1<<32 - 1)} }, bigFrame, ""},
	} {
		t.Run(name, func(t *testing.T) {
			to := identityOf(t)
			from := newClient(t, to.public())
			text := bytes.Join(each.damage(from, from.each("one", "two", "three")), nil)
			body := bodyOf(t, to, from, bytes.NewReader(text))
			err := body.start()
			var found []byte
			if err == nil {
				found, err = io.ReadAll(body)
			}
			if !errors.Is(err, each.want) || string(found) != each.before {
				t.Errorf("%q %v", found, err)
			}
			if _, again := body.Read(make([]byte, 1)); !errors.Is(again, each.want) {
				t.Errorf("read again: %v", again)
			}
		})
	}
}

func TestAFrameWaitsForMemoryAndGivesItBack(t *testing.T) {
	to := identityOf(t)
	from := newClient(t, to.public())
	body := bodyOf(t, to, from, bytes.NewReader(from.frames(strings.Repeat("x", smallFrame))))
	if !body.memory.TryAcquire(maxMemory) {
		t.Fatal("memory is in use")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body.ctx = ctx
	if err := body.start(); !errors.Is(err, busy) {
		t.Errorf("without memory: %v", err)
	}
	body.memory.Release(maxMemory)
}

func TestAClosedBodyTakesNoMemory(t *testing.T) {
	to := identityOf(t)
	from := newClient(t, to.public())
	body := bodyOf(t, to, from, bytes.NewReader(from.frames(strings.Repeat("x", smallFrame))))
	body.Close()
	if err := body.start(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestWhatADeadlineMeans(t *testing.T) {
	for _, within := range []bool{true, false} {
		if err := reading(os.ErrDeadlineExceeded, within); !errors.Is(err, slowFrame) {
			t.Errorf("%t: %v", within, err)
		}
	}
	if err := reading(io.ErrClosedPipe, true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// TestTheDeadlineOfAFrame has a client that sends one byte at a time, and looks at the deadlines.
func TestTheDeadlineOfAFrame(t *testing.T) {
	to := identityOf(t)
	from := newClient(t, to.public())
	frame := from.frame("hello")
	body := bodyOf(t, to, from, iotest.OneByteReader(bytes.NewReader(frame)))
	var deadlines []time.Time
	body.deadline = func(until time.Time) { deadlines = append(deadlines, until) }
	if err := body.start(); err != nil {
		t.Fatal(err)
	}
	last := len(deadlines) - 1
	if last != len(frame)-lengthSize || !deadlines[last].IsZero() {
		t.Errorf("%d deadlines, the last %v", len(deadlines), deadlines[last])
	}
	for index, until := range deadlines[:last] {
		if want := deadlines[0].Add(time.Duration(index) * time.Second / frameRate); !until.Equal(want) {
			t.Errorf("%d: %v, want %v", index, until, want)
		}
	}
}

// TestKeysOfLowOrder has public keys with which every private key gives the same secret: they are
// refused as if the body could not be opened.
func TestKeysOfLowOrder(t *testing.T) {
	to := identityOf(t)
	for _, key := range [][]byte{make([]byte, keySize), append([]byte{1}, make([]byte, keySize-1)...)} {
		if _, err := to.recipient(key); err == nil {
			t.Errorf("accepted %x", key)
		}
	}
	if _, err := ecdh.X25519().NewPublicKey(make([]byte, keySize)); err != nil {
		t.Errorf("refused only by its form: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	to := identityOf(f)
	from := newClient(f, to.public())
	frames := from.each("one", "two")
	f.Add([]byte{})
	f.Add(length(0))
	f.Add(length(maxFrame + 1))
	f.Add(frames[0])
	f.Add(frames[1])
	f.Add(slices.Concat(frames[0], length(0), frames[1]))
	f.Add(slices.Concat(frames[0], frames[1][:7]))
	f.Fuzz(func(t *testing.T, text []byte) {
		body := bodyOf(t, to, from, bytes.NewReader(text))
		err := body.start()
		var found []byte
		if err == nil {
			found, err = io.ReadAll(body)
		}
		// Nothing but the honest frames can be opened, in their order.
		if !strings.HasPrefix("onetwo", string(found)) || (err == nil && len(found) == 0) {
			t.Errorf("%q %v", found, err)
		}
		var said *problem
		if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &said) {
			t.Errorf("%v", err)
		}
	})
}
