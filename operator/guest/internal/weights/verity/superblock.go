// Package verity reads images that end in a dm-verity hash tree, and returns only bytes
// that are verified against the root hash.
//
// The kernel's dm-verity needs privileges on the node that an enclave's Pod does not have,
// so the tree is verified here. The layout is that of `veritysetup format` with version 1
// of the tree, SHA-256 and blocks of 4096 bytes (the kernel's
// Documentation/admin-guide/device-mapper/verity.rst, and cryptsetup's on-disk superblock);
// every other layout is refused. The superblock is not trusted: its whole content follows
// from the reference and the salt, and is compared with them.
package verity

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"cloister.dev/guest/internal/foundation/pattern"
)

const (
	// blockSize is the size in bytes of blocks of data and of the tree.
	blockSize = 4096
	// DigestSize is the size in bytes of a digest.
	DigestSize = 32
	// perBlock is the number of digests in a block of the tree.
	perBlock = blockSize / DigestSize

	algorithm      = "sha256"
	superblockSize = 512
	maxSalt        = 256
)

// Offsets of the fields of the superblock.
const (
	atSignature, atVersion, atType, atUUID, atAlgorithm  = 0, 8, 12, 16, 32
	atDataSize, atHashSize, atBlocks, atSaltSize, atSalt = 64, 68, 72, 80, 88
)

// ErrInvalid is wrapped by every error of an image that is not the referenced one.
var ErrInvalid = errors.New("the image is not the one in the configuration file")

// ErrUnreadable is wrapped by read errors of the storage, which may be temporary.
var ErrUnreadable = errors.New("the image cannot be read")

// UUID is a UUID.
type UUID [16]byte

// String returns a UUID in its usual form.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Reference is a reference to an image: mpk in a configuration file.
type Reference struct {
	// Root is the root hash.
	Root [DigestSize]byte
	// Offset is the number of bytes of data, and the offset of the superblock.
	Offset int64
	// UUID is the UUID in the superblock.
	UUID UUID
}

var referencePattern = pattern.Lazy(`^([0-9a-f]{64})_([1-9][0-9]{0,17})_([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})$`)

// ParseReference parses ROOTHASH_OFFSET_UUID.
func ParseReference(text string) (Reference, error) {
	parts := referencePattern().FindStringSubmatch(text)
	if parts == nil {
		return Reference{}, fmt.Errorf("%q is not ROOTHASH_OFFSET_UUID", text)
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || offset%blockSize != 0 {
		return Reference{}, fmt.Errorf("the offset %s is not a multiple of %d", parts[2], blockSize)
	}
	reference := Reference{Offset: offset}
	// The pattern guarantees hexadecimal digits of the right number.
	_, _ = hex.Decode(reference.Root[:], []byte(parts[1]))
	uuid := parts[3] + parts[4] + parts[5] + parts[6] + parts[7]
	_, _ = hex.Decode(reference.UUID[:], []byte(uuid))
	return reference, nil
}

// String returns ROOTHASH_OFFSET_UUID.
func (r Reference) String() string { return fmt.Sprintf("%x_%d_%s", r.Root, r.Offset, r.UUID) }

// checkSuperblock compares a superblock with the expected one of the reference and the salt.
func checkSuperblock(found []byte, reference Reference, salt []byte) error {
	wrong := func(format string, values ...any) error {
		return fmt.Errorf("%w: the superblock of its hash tree %s", ErrInvalid, fmt.Sprintf(format, values...))
	}
	number := func(offset int) uint32 { return binary.LittleEndian.Uint32(found[offset:]) }
	switch {
	case !bytes.Equal(found[atSignature:atVersion], []byte("verity\x00\x00")):
		return wrong("is missing: there is no dm-verity signature at byte %d", reference.Offset)
	case number(atVersion) != 1 || number(atType) != 1:
		return wrong("has version %d and type %d; only version 1 and type 1 are supported", number(atVersion), number(atType))
	case !bytes.Equal(found[atUUID:atAlgorithm], reference.UUID[:]):
		return wrong("has the UUID %s instead of %s", UUID(found[atUUID:atAlgorithm]), reference.UUID)
	case !bytes.Equal(bytes.TrimRight(found[atAlgorithm:atDataSize], "\x00"), []byte(algorithm)):
		return wrong("names the hash %q; only %s is supported", bytes.TrimRight(found[atAlgorithm:atDataSize], "\x00"), algorithm)
	case number(atDataSize) != blockSize || number(atHashSize) != blockSize:
		return wrong("has blocks of %d and %d bytes; only %d is supported", number(atDataSize), number(atHashSize), blockSize)
	case binary.LittleEndian.Uint64(found[atBlocks:]) != uint64(reference.Offset)/blockSize:
		return wrong("counts %d blocks of data instead of %d", binary.LittleEndian.Uint64(found[atBlocks:]), reference.Offset/blockSize)
	}
	if !bytes.Equal(found, superblock(reference, salt)) {
		return wrong("has another salt than the repository and commit of the model give, or unexpected bytes")
	}
	return nil
}

// superblock returns the only superblock that an image may have.
func superblock(reference Reference, salt []byte) []byte {
	block := make([]byte, superblockSize)
	copy(block[atSignature:], "verity")
	binary.LittleEndian.PutUint32(block[atVersion:], 1)
	binary.LittleEndian.PutUint32(block[atType:], 1)
	copy(block[atUUID:], reference.UUID[:])
	copy(block[atAlgorithm:], algorithm)
	binary.LittleEndian.PutUint32(block[atDataSize:], blockSize)
	binary.LittleEndian.PutUint32(block[atHashSize:], blockSize)
	binary.LittleEndian.PutUint64(block[atBlocks:], uint64(reference.Offset)/blockSize)
	binary.LittleEndian.PutUint16(block[atSaltSize:], uint16(len(salt)))
	copy(block[atSalt:], salt)
	return block
}
