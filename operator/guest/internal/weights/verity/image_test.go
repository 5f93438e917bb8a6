package verity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

var salt = sha256.Sum256([]byte("example/tiny@0123456789abcdef0123456789abcdef01234567"))

const uuid = "6493760e-f831-5d28-81b4-39e665a8095a"

// roots are the root hashes by veritysetup 2.6.1 for a number of blocks of testData, with
// this salt.
var roots = map[int]string{
	1:     "d0bdb0a94954b8dd59810f3e9ef0f13292c8164d11e40e822cc370ed306e57d8",
	2:     "9139c7b928b35800d7cdef4a6b9b28231471c8d63d1492cad3f807b62aa25b78",
	128:   "39b6bd521070ed6ff006dfb8e7e2d2090a0c7ab001e6b8a98058e3e63c36d5da",
	129:   "805706f1aea00b296eb328686bb03a7317c2c412dd860428dca4f5ea7741fcf2",
	200:   "9abd013977e3b3a441a5401227b22a6c40fc70d125ddc399b3a8ed1e983714ed",
	16385: "fdd21042c94ad5c559f8e79ff529148e234e266742516fef410958075d65cd4d",
}

// testData returns blocks that all differ.
func testData(blocks int) []byte {
	var data []byte
	for block := range blocks {
		digest := sha256.Sum256(fmt.Append(nil, block))
		data = append(data, bytes.Repeat(digest[:], perBlock)...)
	}
	return data
}

// format returns the data with superblock and tree behind it.
func format(data []byte, reference Reference, salt []byte) ([]byte, [DigestSize]byte) {
	digest := func(block []byte) []byte {
		sum := sha256.Sum256(slices.Concat(salt, block))
		return sum[:]
	}
	level, tree := data, []byte(nil)
	for len(level) > blockSize {
		var above []byte
		for block := range slices.Chunk(level, blockSize) {
			above = append(above, digest(block)...)
		}
		above = append(above, make([]byte, (blockSize-len(above)%blockSize)%blockSize)...)
		tree = append(slices.Clone(above), tree...)
		level = above
	}
	header := append(superblock(reference, salt), make([]byte, blockSize-superblockSize)...)
	return slices.Concat(data, header, tree), [DigestSize]byte(digest(level))
}

func sealed(t testing.TB, blocks int) ([]byte, Reference) {
	t.Helper()
	reference, err := ParseReference(fmt.Sprintf("%s_%d_%s", roots[blocks], blocks*blockSize, uuid))
	if err != nil {
		t.Fatal(err)
	}
	image, root := format(testData(blocks), reference, salt[:])
	if root != reference.Root {
		t.Fatalf("the root hash of %d blocks is %x, veritysetup computes %s", blocks, root, roots[blocks])
	}
	return image, reference
}

func TestImagesOfAnyTreeDepthAreRead(t *testing.T) {
	for blocks := range roots {
		file, reference := sealed(t, blocks)
		image, err := Open(bytes.NewReader(file), reference, salt[:])
		if err != nil {
			t.Fatalf("%d blocks: %v", blocks, err)
		}
		data, err := io.ReadAll(io.NewSectionReader(image, 0, image.Size()))
		if err != nil || !bytes.Equal(data, file[:blocks*blockSize]) {
			t.Fatalf("%d blocks: %d bytes, %v", blocks, len(data), err)
		}
		if err := image.CheckRest(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := image.ReadAt(make([]byte, 2), image.Size()-1); err != io.EOF {
			t.Fatalf("a read beyond the end returns %v", err)
		}
	}
}

func TestEveryChangedBitIsDetected(t *testing.T) {
	file, reference := sealed(t, 200)
	place := func(block int) int { return block*blockSize + 77 }
	for name, at := range map[string]int{
		"first data": place(0), "last data": place(199), "signature": 200 * blockSize,
		"superblock": 200*blockSize + 400, "root of the tree": place(201),
		"padding of the root": 202*blockSize - 1, "first leaf": place(202), "last leaf": place(203), "padding of a leaf": 204*blockSize - 1,
	} {
		for _, bit := range []byte{1, 128} {
			broken := slices.Clone(file)
			broken[at] ^= bit
			image, err := Open(bytes.NewReader(broken), reference, salt[:])
			if err == nil {
				err = image.CheckRest(context.Background())
			}
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestUnverifiedDataIsNeverReturned(t *testing.T) {
	file, reference := sealed(t, 200)
	image, err := Open(changing{bytes.NewReader(file)}, reference, salt[:])
	if err != nil {
		t.Fatal(err)
	}
	count, err := image.ReadAt(make([]byte, 8192), 150*blockSize-1)
	if count != 0 || !errors.Is(err, ErrInvalid) {
		t.Fatalf("%d bytes of a changed image were returned: %v", count, err)
	}
}

// changing is a file that returns other bytes than those that were hashed.
type changing struct{ file *bytes.Reader }

func (c changing) ReadAt(target []byte, offset int64) (int, error) {
	count, err := c.file.ReadAt(target, offset)
	if offset == groupSize {
		target[0] ^= 1
	}
	return count, err
}

func TestErrorMessages(t *testing.T) {
	file, reference := sealed(t, 2)
	header := 2 * blockSize
	changed := func(at int, text string) []byte {
		return slices.Concat(file[:at], []byte(text), file[at+len(text):])
	}
	otherUUID := reference
	otherUUID.UUID[0]++
	for _, trial := range []struct {
		file      []byte
		reference Reference
		salt      []byte
		want      string
	}{
		{file[:header], reference, salt[:], "it ends before byte 8704"},
		{file[:len(file)-1], reference, salt[:], "it ends before byte 16384, which its hash tree needs"},
		{file, otherUUID, salt[:], "has the UUID 6493760e-f831-5d28-81b4-39e665a8095a instead of 6593760e-"},
		{file, reference, []byte("another"), "another salt than the repository and commit"},
		{changed(header, "V"), reference, salt[:], "there is no dm-verity signature at byte 8192"},
		{changed(header+atType, "\x00"), reference, salt[:], "version 1 and type 0"},
		{changed(header+atAlgorithm, "sha512"), reference, salt[:], `names the hash "sha512"`},
		{changed(header+atDataSize, "\x00\x02"), reference, salt[:], "blocks of 512 and 4096 bytes"},
		{changed(header+atBlocks, "\x01"), reference, salt[:], "counts 1 blocks of data instead of 2"},
	} {
		image, err := Open(bytes.NewReader(trial.file), trial.reference, trial.salt)
		if err == nil {
			err = image.CheckRest(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), trial.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf("expected %q, got %v", trial.want, err)
		}
	}
}

func TestCancellationStopsTheCheck(t *testing.T) {
	file, reference := sealed(t, 200)
	image, err := Open(bytes.NewReader(file), reference, salt[:])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := image.CheckRest(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestAReadErrorIsNotAnInvalidImage(t *testing.T) {
	_, reference := sealed(t, 2)
	_, err := Open(brokenDisk{}, reference, salt[:])
	if errors.Is(err, ErrInvalid) || !errors.Is(err, ErrUnreadable) {
		t.Fatal(err)
	}
}

type brokenDisk struct{}

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errors.New("input/output error") }

func TestReferences(t *testing.T) {
	good := strings.Repeat("ab", 32) + "_8192_" + uuid
	reference, err := ParseReference(good)
	if err != nil || reference.String() != good {
		t.Fatalf("%s: %v", reference, err)
	}
	for _, wrong := range []string{
		"", strings.Repeat("ab", 32), strings.Replace(good, "8192", "8191", 1), strings.Replace(good, "8192", "0", 1),
		strings.ToUpper(good), good + "\n", strings.Replace(good, "8192", "9999999999999999999", 1),
	} {
		if _, err := ParseReference(wrong); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add(strings.Repeat("ab", 32) + "_8192_" + uuid)
	f.Fuzz(func(t *testing.T, text string) {
		reference, err := ParseReference(text)
		if err == nil && (reference.String() != text || reference.Offset <= 0 || reference.Offset%blockSize != 0) {
			t.Fatalf("%q was read as %s", text, reference)
		}
	})
}

// FuzzOpen changes an image anywhere: only the original data is returned, or nothing.
func FuzzOpen(f *testing.F) {
	file, reference := sealed(f, 2)
	f.Add(uint16(0), []byte{1})
	f.Add(uint16(2*blockSize), []byte("verity"))
	f.Add(uint16(3*blockSize), make([]byte, DigestSize))
	f.Fuzz(func(t *testing.T, at uint16, text []byte) {
		broken := slices.Clone(file)
		copy(broken[min(int(at), len(broken)):], text)
		image, err := Open(bytes.NewReader(broken), reference, salt[:])
		if err != nil {
			return
		}
		data, err := io.ReadAll(io.NewSectionReader(image, 0, image.Size()))
		if !bytes.HasPrefix(file[:2*blockSize], data) {
			t.Fatal("changed data was returned")
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		if !bytes.Equal(broken[:2*blockSize], file[:2*blockSize]) && err == nil {
			t.Fatal("changed data was read without an error")
		}
	})
}
