package verity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// groupSize is the number of bytes whose digests are in one block of the tree: the unit
// that is read, verified and cached.
const groupSize = perBlock * blockSize

// maxGroups is the number of cached groups: a few files are read at a time, with their
// metadata.
const maxGroups = 16

// Image is the data in front of a hash tree. Every byte that it returns has been verified;
// the file behind it may change at any time. It is not safe for concurrent use.
type Image struct {
	source io.ReaderAt
	root   [DigestSize]byte
	salt   []byte
	size   int64
	// levels are the offsets in bytes of the levels of the tree; the first level has
	// the digests of the data.
	levels []int64
	groups map[int64][]byte
	order  []int64
	// nodes caches the last used block of each level.
	nodes []node
	// seen has a bit for each verified group.
	seen []uint64
}

type node struct {
	index int64
	block []byte
}

// Open reads and verifies the superblock. Data and tree are read on demand.
func Open(source io.ReaderAt, reference Reference, salt []byte) (*Image, error) {
	if len(salt) > maxSalt {
		return nil, fmt.Errorf("the salt has more than %d bytes", maxSalt)
	}
	if reference.Offset < blockSize || reference.Offset%blockSize != 0 {
		return nil, fmt.Errorf("the offset %d is not a positive multiple of %d", reference.Offset, blockSize)
	}
	found := make([]byte, superblockSize)
	if err := readFull(source, found, reference.Offset); err != nil {
		return nil, err
	}
	if err := checkSuperblock(found, reference, salt); err != nil {
		return nil, err
	}
	groups := (reference.Offset + groupSize - 1) / groupSize
	image := &Image{
		source: source, root: reference.Root, salt: salt, size: reference.Offset,
		groups: map[int64][]byte{}, seen: make([]uint64, (groups+63)/64),
	}
	image.place(reference.Offset + blockSize)
	return image, nil
}

// place computes the offsets of the levels: the highest is first, behind the block of the superblock.
func (i *Image) place(start int64) {
	var counts []int64
	for blocks := i.size / blockSize; blocks > 1; {
		blocks = (blocks + perBlock - 1) / perBlock
		counts = append(counts, blocks)
	}
	i.levels = make([]int64, len(counts))
	i.nodes = make([]node, len(counts))
	for level := len(counts) - 1; level >= 0; level-- {
		i.levels[level] = start
		start += counts[level] * blockSize
	}
}

// Size returns the number of bytes of data.
func (i *Image) Size() int64 { return i.size }

// ReadAt reads verified bytes of the data.
func (i *Image) ReadAt(target []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, fmt.Errorf("the offset %d is negative", offset)
	}
	done := 0
	for done < len(target) {
		if offset >= i.size {
			return done, io.EOF
		}
		group, err := i.group(offset / groupSize)
		if err != nil {
			return done, err
		}
		copied := copy(target[done:], group[offset%groupSize:])
		done += copied
		offset += int64(copied)
	}
	return done, nil
}

// CheckRest verifies all data that has not been read yet, so that every bit of the image
// and of its tree is verified.
func (i *Image) CheckRest(ctx context.Context) error {
	for index := int64(0); index*groupSize < i.size; index++ {
		if i.seen[index/64]&(1<<(index%64)) != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := i.group(index); err != nil {
			return err
		}
	}
	return nil
}

// group returns a verified group of the data.
func (i *Image) group(index int64) ([]byte, error) {
	if data, found := i.groups[index]; found {
		return data, nil
	}
	var data []byte
	if len(i.order) == maxGroups {
		data = i.groups[i.order[0]][:groupSize]
		delete(i.groups, i.order[0])
		i.order = i.order[1:]
	} else {
		data = make([]byte, groupSize)
	}
	data = data[:min(groupSize, i.size-index*groupSize)]
	if err := readFull(i.source, data, index*groupSize); err != nil {
		return nil, err
	}
	if err := i.checkGroup(index, data); err != nil {
		return nil, err
	}
	i.groups[index] = data
	i.order = append(i.order, index)
	i.seen[index/64] |= 1 << (index % 64)
	return data, nil
}

// checkGroup compares the blocks of a group with their digests, on all CPUs.
func (i *Image) checkGroup(index int64, data []byte) error {
	digests := i.root[:]
	if len(i.levels) > 0 {
		var err error
		if digests, err = i.tree(0, index); err != nil {
			return err
		}
	}
	blocks := len(data) / blockSize
	workers := min(runtime.GOMAXPROCS(0), blocks)
	wrong := make([]int, workers)
	var all sync.WaitGroup
	for worker := range workers {
		wrong[worker] = -1
		all.Go(func() {
			for block := worker; block < blocks; block += workers {
				digest := i.digest(data[block*blockSize : (block+1)*blockSize])
				if !bytes.Equal(digest[:], digests[block*DigestSize:(block+1)*DigestSize]) {
					wrong[worker] = block
					return
				}
			}
		})
	}
	all.Wait()
	for _, block := range wrong {
		if block >= 0 {
			return fmt.Errorf("%w: its data at byte %d does not lead to the root hash %x", ErrInvalid, index*groupSize+int64(block)*blockSize, i.root)
		}
	}
	return nil
}

// tree returns a verified block of a level of the tree.
func (i *Image) tree(level int, index int64) ([]byte, error) {
	if last := i.nodes[level]; last.block != nil && last.index == index {
		return last.block, nil
	}
	want := i.root[:]
	if level+1 < len(i.levels) {
		above, err := i.tree(level+1, index/perBlock)
		if err != nil {
			return nil, err
		}
		at := index % perBlock * DigestSize
		want = above[at : at+DigestSize]
	}
	place := i.levels[level] + index*blockSize
	block := make([]byte, blockSize)
	if err := readFull(i.source, block, place); err != nil {
		return nil, err
	}
	if digest := i.digest(block); !bytes.Equal(digest[:], want) {
		return nil, fmt.Errorf("%w: its hash tree at byte %d does not lead to the root hash %x", ErrInvalid, place, i.root)
	}
	i.nodes[level] = node{index: index, block: block}
	return block, nil
}

func (i *Image) digest(block []byte) [DigestSize]byte {
	hash := sha256.New()
	hash.Write(i.salt)
	hash.Write(block)
	return [DigestSize]byte(hash.Sum(nil))
}

func readFull(source io.ReaderAt, target []byte, offset int64) error {
	count, err := source.ReadAt(target, offset)
	switch {
	case count == len(target):
		return nil
	case err == io.EOF || err == nil:
		return fmt.Errorf("%w: it ends before byte %d, which its hash tree needs", ErrInvalid, offset+int64(len(target)))
	}
	return fmt.Errorf("%w at byte %d: %w", ErrUnreadable, offset, err)
}
