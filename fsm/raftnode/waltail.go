package raftnode

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"golang.org/x/sys/unix"

	"raftmq/seam"
)

// raft-wal takes whatever does not fit at the end of its last file for a write that a crash has torn, and goes on before it; a flipped bit in an entry that was synced and
// acknowledged long ago makes it forget all that follows. So the last file is read before raft-wal opens it:
//
//	file    32 bytes head | batch … | zeros, as the file was allocated
//	batch   frame … | commit frame
//	frame   u8 type (1 entry, 2 index, 3 commit) | 3 zeros | u32 length, of a commit the CRC-32C of the batch before it (of the first one with the head) | payload | zeros up to 8 bytes
//
// (raft-wal 0.4, segment/format.go; little-endian.) Each batch is synced before the next is begun. So a batch that is bad with a whole one behind it is damaged, not torn; so is one that
// has all its frames and whose sectors were all written. What is left is torn: it was never acknowledged, is made zeros, and raft-wal begins there.
const (
	walHead       = 32
	walMagic      = 0x58eb6b0d
	frameHead     = 8
	frameEntry    = 1
	frameIndex    = 2
	frameCommit   = 3
	sectorBytes   = 512
	maxWALEntry   = 64 << 20
	laterBatches  = 64 // candidates for a later batch's begin that are tried for each end
	walFileSuffix = ".wal"
)

// checkWAL looks at the files of a raft-wal log that nobody has open. lazy: what is torn at the end is cut in any case, as in that mode later batches prove nothing.
func checkWAL(dir string, lazy bool, logger hclog.Logger) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"+walFileSuffix))
	if err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	meta := filepath.Join(dir, metadb.FileName)
	if _, err := os.Stat(meta); errors.Is(err, os.ErrNotExist) {
		if len(files) > 0 {
			return damaged("%s is gone, and %d log files are there", meta, len(files))
		}
		return nil
	}
	var state types.PersistentState
	err = guarded(func() error {
		var db metadb.BoltMetaDB
		if state, err = db.Load(dir); err != nil {
			return errors.Join(err, db.Close())
		}
		return db.Close()
	})
	if err != nil {
		return asDamage(fmt.Errorf("raftnode: open %s: %w", meta, err))
	}
	for i, info := range state.Segments {
		path := filepath.Join(dir, segment.FileName(info))
		if info.SealTime.IsZero() && i == len(state.Segments)-1 {
			if err := checkTail(path, info, lazy, logger); err != nil {
				return err
			}
		} else if err := checkSealed(path, info); err != nil {
			return err
		}
	}
	return nil
}

// checkSealed looks whether a file is there with its head and as long as its index. What is in it each entry's own checksum tells.
func checkSealed(path string, info types.SegmentInfo) error {
	f, err := os.Open(path)
	if err != nil {
		return asDamage(fmt.Errorf("raftnode: %w", err))
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	if need := int64(info.IndexStart) + 4*int64(info.MaxIndex-info.BaseIndex+1); fi.Size() < need {
		return damaged("%s has %d bytes, its entries and their index take %d", path, fi.Size(), need)
	}
	var head [walHead]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return asDamage(fmt.Errorf("raftnode: read %s: %w", path, err))
	}
	return checkWALHead(path, head[:], info)
}

func checkWALHead(path string, b []byte, info types.SegmentInfo) error {
	magic, base, id := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if magic != walMagic || base != info.BaseIndex || id != info.ID {
		return damaged("the head of %s says %#x, entry %d, file %d instead of %#x, entry %d, file %d", path, magic, base, id, uint64(walMagic), info.BaseIndex, info.ID)
	}
	return nil
}

// checkTail finds out whether the last file ends with what was written to it last.
func checkTail(path string, info types.SegmentInfo, lazy bool, logger hclog.Logger) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is named before it is made: whether it held entries the caller knows from what was applied
	}
	if err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	good, batches, err := wholeBatches(f)
	if err != nil {
		return fmt.Errorf("raftnode: read %s: %w", path, err)
	}
	if good > 0 {
		var head [walHead]byte
		if _, err := f.ReadAt(head[:], 0); err != nil {
			return fmt.Errorf("raftnode: read %s: %w", path, err)
		}
		if err := checkWALHead(path, head[:], info); err != nil {
			return err
		}
		// The file's size is durable with the first batch, which may have come to the disk alone.
		if fi.Size() < int64(info.SizeLimit) && batches > 1 && !lazy {
			return damaged("%s was cut: it has %d bytes and was made with %d", path, fi.Size(), info.SizeLimit)
		}
	}
	rest, err := dataBehind(f, good, fi.Size())
	if err != nil {
		return fmt.Errorf("raftnode: read %s: %w", path, err)
	}
	if len(rest) == 0 {
		return nil
	}
	if why := notTorn(rest, good); why != "" && !lazy && !seam.On(seam.TruncateRaftLog) {
		return damaged("%s at offset %d, %d bytes before its end: %s", path, good, len(rest), why)
	}
	logger.Info("the end of the Raft log was torn by a crash before it was acknowledged, and is cut", "file", path, "offset", good, "bytes", len(rest))
	if err := errors.Join(zeroOut(f, good, int64(len(rest))), f.Sync()); err != nil {
		return fmt.Errorf("raftnode: cut the torn end of %s: %w", path, err)
	}
	return nil
}

// wholeBatches reads batches from the file's begin on as long as they are whole, and returns where they end, and how many there are.
func wholeBatches(f io.ReaderAt) (good int64, batches int, err error) {
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, 1<<62), 256<<10)
	buf := make([]byte, 64<<10)
	if _, err := io.ReadFull(r, buf[:walHead]); err != nil {
		return 0, 0, notEnd(err)
	}
	at, sum := int64(walHead), crc32.Checksum(buf[:walHead], castagnoli)
	for {
		head := buf[:frameHead]
		if _, err := io.ReadFull(r, head); err != nil {
			return good, batches, notEnd(err)
		}
		kind, size, ok := frame(head)
		if !ok {
			return good, batches, nil
		}
		at += frameHead
		if kind == frameCommit {
			if binary.LittleEndian.Uint32(head[4:]) != sum {
				return good, batches, nil
			}
			good, sum = at, 0
			batches++
			continue
		}
		sum = crc32.Update(sum, castagnoli, head)
		for left := size; left > 0; {
			n, err := io.ReadFull(r, buf[:min(left, len(buf))])
			sum = crc32.Update(sum, castagnoli, buf[:n])
			if err != nil {
				return good, batches, notEnd(err)
			}
			left -= n
		}
		at += int64(size)
	}
}

// frame reads a frame's head; size is the payload's, padded. Not ok: there is none.
func frame(head []byte) (kind byte, size int, ok bool) {
	kind = head[0]
	if kind < frameEntry || kind > frameCommit || head[1]|head[2]|head[3] != 0 {
		return 0, 0, false
	}
	if kind == frameCommit {
		return kind, 0, true
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n > maxWALEntry {
		return 0, 0, false
	}
	return kind, (int(n) + frameHead - 1) / frameHead * frameHead, true
}

func notEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// dataBehind reads [from, size) of the file up to the last byte that is not zero, rounded up to a frame head. Holes are not read: most of the file is one.
func dataBehind(f *os.File, from, size int64) ([]byte, error) {
	end, holes := from, true
	buf := make([]byte, 256<<10)
	for at := from; at < size; {
		if holes {
			next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
			switch {
			case errors.Is(err, unix.ENXIO):
				at = size
				continue
			case err != nil:
				holes = false
			default:
				at = next
			}
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if last := len(bytes.TrimRight(buf[:n], "\x00")); last > 0 {
			end = at + int64(last)
		}
		at += int64(n)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n == 0 {
			break
		}
	}
	if end == from {
		return nil, nil
	}
	end = min(from+(end-from+frameHead-1)/frameHead*frameHead, size)
	rest := make([]byte, end-from)
	_, err := f.ReadAt(rest, from)
	return rest, notEnd(err)
}

// notTorn says why what stands behind the whole batches, b at offset at of the file, cannot be the rest of a write that a crash has torn; "" when it can.
func notTorn(b []byte, at int64) string {
	var ends []int // of commit frames, or what looks like one
	for i := 0; i+frameHead <= len(b); i += frameHead {
		if kind, _, ok := frame(b[i : i+frameHead]); ok && kind == frameCommit {
			ends = append(ends, i)
		}
	}
	for i := range ends {
		begin := ends[i] + frameHead
		sum, from := uint32(0), begin
		for _, end := range ends[i+1 : min(i+1+laterBatches, len(ends))] {
			sum, from = crc32.Update(sum, castagnoli, b[from:end]), end
			if end > begin && binary.LittleEndian.Uint32(b[end+4:]) == sum {
				return fmt.Sprintf("a batch of entries is not what was written there, and the one at offset %d, written later, is whole", at+int64(begin))
			}
		}
	}
	// The last one: a write that a crash has torn lacks sectors.
	if len(ends) == 0 || ends[len(ends)-1]+frameHead != len(b) || framesEnd(b) != len(b) || missesSector(b, at) {
		return ""
	}
	return "the last batch of entries is there with all its sectors, and is not what was written"
}

// framesEnd is where the frames from b's begin on end with the first commit frame, 0 when they do not.
func framesEnd(b []byte) int {
	for i := 0; i+frameHead <= len(b); {
		kind, size, ok := frame(b[i : i+frameHead])
		if !ok {
			return 0
		}
		i += frameHead + size
		if kind == frameCommit {
			return i
		}
	}
	return 0
}

// missesSector reports whether a sector of the file has nothing in it from b, which begins at offset at.
func missesSector(b []byte, at int64) bool {
	for i := 0; i < len(b); {
		n := min(sectorBytes-int((at+int64(i))%sectorBytes), len(b)-i)
		if len(bytes.TrimRight(b[i:i+n], "\x00")) == 0 {
			return true
		}
		i += n
	}
	return false
}

func zeroOut(f *os.File, from, n int64) error {
	zeros := make([]byte, 256<<10)
	for n > 0 {
		k := min(n, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:k], from); err != nil {
			return err
		}
		from, n = from+k, n-k
	}
	return nil
}
