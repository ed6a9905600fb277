package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
)

// ErrStaging: staged bytes are damaged or incomplete. They are worth nothing then: Clear, and fetch again.
var ErrStaging = errors.New("store: staged log bytes are damaged")

// Staging keeps log bytes of a peer's log until they are installed: in order, without gap, each with a checksum. They survive the process, so
// that a transfer goes on where it was. Nothing in it is part of the log. Calls may come from any goroutine, one at a time;
// Sealed from any.
type Staging struct {
	fs    mappedfile.FS
	dir   string
	piece int64

	mu   sync.Mutex
	seal *Seal // guarded by mu

	opened   bool // the fields below are what the files say
	replaces bool
	from, to int64
	sum      uint32 // of [from, to)
	pieces   []int64
	handle   mappedfile.Handle // of the last piece; nil when the next Append makes one
	at       int64             // position behind its last frame
	dirty    int64             // bytes since the last sync
	broken   error             // of a sync: what the disk has is not known (F33)
}

// OpenStaging opens a folder, which need not exist. It reads the seal only; what is staged is read by Resume.
func OpenStaging(fsys mappedfile.FS, dir string) (*Staging, error) {
	s := &Staging{fs: fsys, dir: dir, piece: pieceSize}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("store: staging folder: %w", err)
	}
	path := filepath.Join(dir, sealName)
	b, err := fsys.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	seal, err := decodeSeal(b)
	if errors.Is(err, errSealVersion) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err == nil { // a damaged one is none
		s.seal = &seal
	}
	return s, nil
}

// Sealed is what the staged bytes are complete for; false when they are not.
func (s *Staging) Sealed() (Seal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seal == nil {
		return Seal{}, false
	}
	return *s.seal, true
}

// First is the offset of the first staged byte, the largest there is when nothing is staged. It reads names only.
func (s *Staging) First() (int64, error) {
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("store: staging: %w", err)
	}
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name, pieceSuffix); ok {
			var first int64
			if n, err := fmt.Sscanf(base, "%d", &first); n == 1 && err == nil {
				return first, nil
			}
		}
	}
	if seal, ok := s.Sealed(); ok {
		return seal.From, nil
	}
	return math.MaxInt64, nil
}

// Range is what is staged, and whether it replaces the log. After Resume or Begin.
func (s *Staging) Range() (from, to int64, replaces bool) { return s.from, s.to, s.replaces }

// Sum is the CRC-32C of all that is staged. After Resume or Begin.
func (s *Staging) Sum() uint32 { return s.sum }

// Resume reads what is staged, as far as it is whole, and cuts the rest. The seal goes when it covers more than that.
func (s *Staging) Resume() error {
	if s.opened {
		return nil
	}
	if err := s.resume(); err != nil {
		return fmt.Errorf("store: staging: %w", err)
	}
	s.opened = true
	if seal, ok := s.Sealed(); ok && !s.holds(seal) {
		return s.Unseal()
	}
	return nil
}

// holds tells that all bytes of a seal are there.
func (s *Staging) holds(seal Seal) bool {
	if len(s.pieces) == 0 {
		s.from, s.to, s.replaces = seal.From, seal.From, seal.Replaces
	}
	return seal.From == s.from && seal.To <= s.to && seal.Replaces == s.replaces
}

func (s *Staging) resume() error {
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return err
	}
	whole := true // up to here; from the first piece on that is not, all are removed
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name, pieceSuffix)
		if e.Dir || e.Name == sealName {
			continue
		}
		if whole && ok { // what is no piece an older build has left, or a crash
			var first int64
			if n, err := fmt.Sscanf(base, "%d", &first); n == 1 && err == nil && e.Name == pieceName(first) {
				if whole, err = s.resumePiece(first, e.Size); err != nil {
					return err
				}
				continue
			}
		}
		if err := s.fs.Remove(filepath.Join(s.dir, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// resumePiece takes a piece behind those before it. Not whole: it is the last one.
func (s *Staging) resumePiece(first, size int64) (whole bool, err error) {
	path := filepath.Join(s.dir, pieceName(first))
	if size <= pieceHeaderSize { // killed while it was made
		return false, s.fs.Remove(path)
	}
	h, err := s.fs.Open(path, false)
	if err != nil {
		return false, err
	}
	b, err := h.Map(size, false)
	if err != nil {
		return false, errors.Join(err, h.Close())
	}
	r, err := scanPiece(b)
	if err == nil && (r.first != first || len(s.pieces) > 0 && (r.from != s.from || r.replaces != s.replaces || first != s.to) || len(s.pieces) == 0 && first != r.from) {
		err = ErrStaging
	}
	if errors.Is(err, ErrStaging) {
		return false, errors.Join(h.Close(), s.fs.Remove(path))
	}
	if err != nil {
		return false, errors.Join(err, h.Close())
	}
	if len(s.pieces) == 0 {
		s.from, s.to, s.replaces, s.sum = r.from, r.from, r.replaces, 0
	}
	if err := s.closeHandle(); err != nil {
		return false, err
	}
	s.pieces = append(s.pieces, first)
	s.sum = commitlog.CombineSums(s.sum, r.sum, r.bytes)
	s.to += r.bytes
	s.handle, s.at, s.dirty = h, r.end, r.end // a killed process left it in the page cache
	_, err = h.Zero(r.end, size-r.end)
	// What follows is behind this piece's end if it is full, or a leftover: its name tells.
	return true, err
}

// Begin gives up what is staged and begins anew at an offset.
func (s *Staging) Begin(from int64, replaces bool) error {
	if err := s.Clear(); err != nil {
		return err
	}
	s.from, s.to, s.replaces = from, from, replaces
	return nil
}

// Append stages the next bytes, at most MaxStaged. They survive the process at once, a power cut after Seal, or after a few more of them.
func (s *Staging) Append(p []byte) error {
	if s.broken != nil {
		return s.broken
	}
	if len(p) == 0 || len(p) > MaxStaged || !s.opened {
		return fmt.Errorf("%w: %d bytes at once", ErrInstall, len(p))
	}
	if s.handle == nil || s.at+frameHeaderSize+int64(len(p)) > max(s.piece, pieceHeaderSize+frameHeaderSize+int64(len(p))) {
		if err := s.nextPiece(int64(len(p))); err != nil {
			return fmt.Errorf("store: staging: %w", err)
		}
	}
	if err := s.handle.Allocate(s.at, frameHeaderSize+int64(len(p))); err != nil && !errors.Is(err, mappedfile.ErrUnsupported) {
		return fmt.Errorf("store: staging: %w", err)
	}
	be := binary.BigEndian
	sum := crc32.Checksum(p, castagnoli)
	var header [frameHeaderSize]byte
	be.PutUint32(header[:], uint32(len(p)))
	be.PutUint32(header[4:], sum)
	be.PutUint32(header[8:], frameSum(header[:], s.to))
	if err := s.handle.WriteAt(p, s.at+frameHeaderSize); err != nil {
		return fmt.Errorf("store: staging: %w", err)
	}
	if err := s.handle.WriteAt(header[:], s.at); err != nil {
		return fmt.Errorf("store: staging: %w", err)
	}
	s.at += frameHeaderSize + int64(len(p))
	s.to += int64(len(p))
	s.sum = commitlog.CombineSums(s.sum, sum, int64(len(p)))
	s.dirty += int64(len(p))
	return nil
}

// nextPiece makes the file for the next frame, of n bytes. The one before is durable then.
func (s *Staging) nextPiece(n int64) error {
	if err := s.closeHandle(); err != nil {
		return err
	}
	path := filepath.Join(s.dir, pieceName(s.to))
	size := max(s.piece, pieceHeaderSize+frameHeaderSize+n)
	h, err := s.fs.Create(path, size)
	if err != nil {
		return err
	}
	if err = h.Allocate(0, pieceHeaderSize); errors.Is(err, mappedfile.ErrUnsupported) {
		err = nil
	}
	if err == nil {
		_, err = h.Map(size, false)
	}
	if err != nil {
		return errors.Join(err, h.Close(), s.fs.Remove(path))
	}
	b := make([]byte, pieceHeaderSize)
	be := binary.BigEndian
	copy(b, pieceMagic)
	b[4] = stagingVersion
	if s.replaces {
		b[5] = flagReplaces
	}
	be.PutUint64(b[8:], uint64(s.from))
	be.PutUint64(b[16:], uint64(s.to))
	be.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	if err := h.WriteAt(b, 0); err != nil {
		return errors.Join(err, h.Close(), s.fs.Remove(path))
	}
	s.handle, s.at = h, pieceHeaderSize
	s.pieces = append(s.pieces, s.to)
	return nil
}

// closeHandle makes the last piece durable and lets go of it.
func (s *Staging) closeHandle() error {
	if s.handle == nil {
		return nil
	}
	err := errors.Join(s.sync(), s.handle.Close())
	s.handle = nil
	return err
}

func (s *Staging) sync() error {
	if s.dirty == 0 {
		return nil
	}
	if err := s.handle.Sync(); err != nil {
		s.broken = fmt.Errorf("store: staging: %w", err)
		return s.broken
	}
	s.dirty = 0
	return nil
}

// Seal makes the bytes durable and declares those up to to complete for the snapshot at index.
func (s *Staging) Seal(index uint64, to int64) error {
	if to < s.from || to > s.to || !s.opened {
		return fmt.Errorf("%w: seal of [%d, %d), staged is up to %d", ErrInstall, s.from, to, s.to)
	}
	if s.broken != nil {
		return s.broken
	}
	if s.handle != nil {
		if err := s.sync(); err != nil {
			return err
		}
	}
	seal := Seal{RaftIndex: index, From: s.from, To: to, Replaces: s.replaces}
	path := filepath.Join(s.dir, sealName)
	err := s.fs.SyncDir(s.dir) // the pieces' names, before the seal's
	if err == nil {
		err = s.fs.WriteFile(path+".tmp", appendSeal(nil, seal))
	}
	if err == nil {
		err = s.fs.Rename(path+".tmp", path)
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("store: staging: seal: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seal = &seal
	return nil
}

// Unseal takes the seal away, durably: more bytes are to come.
func (s *Staging) Unseal() error {
	if _, ok := s.Sealed(); !ok {
		return nil
	}
	err := s.fs.Remove(filepath.Join(s.dir, sealName))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("store: staging: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seal = nil
	return nil
}

// CopyTo writes the staged bytes [from, to) to w, after they have passed their checksums again; ErrStaging when they do not.
func (s *Staging) CopyTo(from, to int64, w io.Writer) error {
	if from < s.from || to > s.to || !s.opened {
		return fmt.Errorf("%w: [%d, %d), staged is [%d, %d)", ErrStaging, from, to, s.from, s.to)
	}
	for i, first := range s.pieces {
		end := s.to
		if i+1 < len(s.pieces) {
			end = s.pieces[i+1]
		}
		if end <= from || first >= to {
			continue
		}
		if err := s.copyPiece(first, end, from, to, w); err != nil {
			return err
		}
	}
	return nil
}

func (s *Staging) copyPiece(first, end, from, to int64, w io.Writer) (err error) {
	path := filepath.Join(s.dir, pieceName(first))
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	size := int64(0)
	for _, e := range entries {
		if e.Name == pieceName(first) {
			size = e.Size
		}
	}
	if size == 0 {
		return fmt.Errorf("%w: %s is gone", ErrStaging, path)
	}
	h, err := s.fs.Open(path, true)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	b, err := h.Map(size, false)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	at := int64(pieceHeaderSize)
	for off := first; off < min(end, to); {
		bytes, _, ok := frameAt(b[min(at, size):], off)
		if !ok {
			return fmt.Errorf("%w: %s at %d, log bytes from %d on", ErrStaging, path, at, off)
		}
		n := int64(len(bytes))
		if low, high := max(from-off, 0), min(to-off, n); low < high {
			if _, err := w.Write(bytes[low:high]); err != nil {
				return err
			}
		}
		off, at = off+n, at+frameHeaderSize+n
	}
	return nil
}

// Clear gives up all that is staged. The seal goes first: a crash in between leaves bytes that are for nothing yet.
func (s *Staging) Clear() error {
	if err := s.Unseal(); err != nil {
		return err
	}
	if s.handle != nil {
		if err := s.handle.Close(); err != nil {
			return fmt.Errorf("store: staging: %w", err)
		}
		s.handle = nil
	}
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("store: staging: %w", err)
	}
	// From the last on: what a crash leaves is a begin.
	for i := len(entries) - 1; i >= 0; i-- {
		if e := entries[i]; !e.Dir {
			if err := s.fs.Remove(filepath.Join(s.dir, e.Name)); err != nil {
				return fmt.Errorf("store: staging: %w", err)
			}
		}
	}
	s.opened, s.replaces, s.from, s.to, s.sum, s.pieces, s.at, s.dirty, s.broken = true, false, 0, 0, 0, nil, 0, 0, nil
	return nil
}

// Close lets go of the files; what is staged stays.
func (s *Staging) Close() error {
	err := s.closeHandle()
	s.opened, s.pieces = false, nil
	return err
}
