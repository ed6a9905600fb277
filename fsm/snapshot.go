package fsm

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/seam"

	"github.com/hashicorp/raft"
)

// A snapshot is a head; the log's bytes are not in it. They are in the store, or CatchUp brings them.
//
//	8 bytes magic "RMQSNAP\x01" | u32 head length | head JSON | u32 CRC-32C of the head JSON
const (
	snapshotMagic   = "RMQSNAP\x01"
	snapshotVersion = 1
	maxHeadBytes    = 1 << 30
)

var (
	// ErrSnapshot: the bytes are no snapshot of ours, or damaged. Such a snapshot is ignored and fetched again
	// from a peer; nothing is deleted because of it (F25).
	ErrSnapshot = errors.New("fsm: damaged or foreign snapshot")
	// ErrSnapshotVersion: a newer raftmq wrote the snapshot. It is not ignored: the node must not start without it.
	ErrSnapshotVersion = fmt.Errorf("fsm: snapshot written by a newer raftmq: %w", command.ErrUnknown)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head is what a snapshot says.
type head struct {
	Version int    `json:"version"`
	Applied uint64 `json:"applied"` // Raft index that the tables stand at
	Term    uint64 `json:"term"`
	// LogMin and Position describe the commit log at Applied.
	LogMin   int64           `json:"logMin"`
	Position store.Position  `json:"position"`
	Tables   json.RawMessage `json:"tables"`
}

func appendHead(dst []byte, h *head) ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return dst, fmt.Errorf("fsm: encode snapshot: %w", err)
	}
	dst = append(dst, snapshotMagic...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	dst = append(dst, b...)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(b, castagnoli)), nil
}

// readHead reads and checks a head, and returns how many bytes it took.
func readHead(r io.Reader) (*head, int64, error) {
	var fixed [len(snapshotMagic) + 4]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if m := string(fixed[:len(snapshotMagic)]); m != snapshotMagic {
		if last := len(snapshotMagic) - 1; m[:last] == snapshotMagic[:last] && m[last] > snapshotMagic[last] {
			return nil, 0, fmt.Errorf("%w: layout %d, this one reads %d", ErrSnapshotVersion, m[last], snapshotMagic[last])
		}
		return nil, 0, fmt.Errorf("%w: magic %x", ErrSnapshot, fixed[:len(snapshotMagic)])
	}
	n := binary.BigEndian.Uint32(fixed[len(snapshotMagic):])
	if n > maxHeadBytes {
		return nil, 0, fmt.Errorf("%w: head of %d bytes", ErrSnapshot, n)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)+4)) // grows with what is there, not with what is claimed
	if err != nil || len(b) != int(n)+4 {
		return nil, 0, fmt.Errorf("%w: head of %d bytes, got %d: %w", ErrSnapshot, n, len(b), errors.Join(err, io.ErrUnexpectedEOF))
	}
	if got, want := crc32.Checksum(b[:n], castagnoli), binary.BigEndian.Uint32(b[n:]); got != want {
		return nil, 0, fmt.Errorf("%w: checksum %08x, expected %08x", ErrSnapshot, got, want)
	}
	var h head
	if err := json.Unmarshal(b[:n], &h); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if h.Version != snapshotVersion {
		return nil, 0, fmt.Errorf("%w: version %d, this one reads %d", ErrSnapshotVersion, h.Version, snapshotVersion)
	}
	return &h, int64(len(fixed)) + int64(len(b)), nil
}

// ReadSnapshot reads a snapshot from a leader's stream, and no byte more: earlier builds send log bytes behind it.
func ReadSnapshot(r io.Reader) ([]byte, error) {
	var b bytes.Buffer
	_, _, err := readHead(io.TeeReader(r, &b))
	return b.Bytes(), err
}

// Snapshot implements raft.FSM: it captures the tables and the position; Persist does the work.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.fatal.Load(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStopped, *err)
	}
	min, _ := f.cfg.Store.LogRange()
	return &capture{store: f.cfg.Store, export: f.cfg.Tables.Capture(),
		head: head{Version: snapshotVersion, Applied: f.applied.Load(), Term: f.term, LogMin: min, Position: f.cfg.Store.Position()}}, nil
}

type capture struct {
	store  Store
	export func() ([]byte, error)
	head   head
}

// Persist implements raft.FSMSnapshot. Flush-Before-Truncate: everything that the entries produced is durable
// here before Raft may drop them.
func (c *capture) Persist(sink raft.SnapshotSink) error {
	if seam.On(seam.SkipSnapshotFlush) {
		// It goes on as if all were durable.
	} else if err := c.store.FlushAll(); err != nil {
		return fmt.Errorf("fsm: flush before snapshot: %w", err)
	}
	tables, err := c.export()
	if err != nil {
		return err
	}
	c.head.Tables = tables
	b, err := appendHead(nil, &c.head)
	if err != nil {
		return err
	}
	if _, err := sink.Write(b); err != nil {
		return fmt.Errorf("fsm: write snapshot: %w", err)
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (c *capture) Release() {}

// Restore implements raft.FSM: tables and replay position come from the snapshot. Its log bytes are in the store already, or
// staged, and are installed now.
func (f *FSM) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }()
	h, _, err := readHead(r)
	if err != nil {
		return err
	}
	if seam.On(seam.LoseQueueOffset) {
		for i := range h.Position.QueueOffsets {
			h.Position.QueueOffsets[i].Next = max(0, h.Position.QueueOffsets[i].Next-10)
		}
	}
	if err := f.install(h); err != nil {
		return fmt.Errorf("fsm: install the log of the snapshot at index %d: %w", h.Applied, err)
	}
	if err := f.cfg.Store.Restore(h.Position); err != nil {
		return fmt.Errorf("fsm: restore snapshot at index %d: %w", h.Applied, err)
	}
	if err := f.cfg.Tables.Import(h.Tables); err != nil {
		if errors.Is(err, command.ErrUnknown) {
			f.die(err) // Raft would try again and again: only a newer raftmq helps
		}
		return err
	}
	if s, ok := f.cfg.Tables.Settings(); ok {
		if err := f.checkSettings(s); err != nil {
			return err
		}
	}
	f.term = h.Term
	f.applied.Store(h.Applied)
	if f.cfg.OnTables != nil {
		f.cfg.OnTables()
	}
	return nil
}

// install brings the log to the snapshot's end with what CatchUp has staged for it, if it did.
func (f *FSM) install(h *head) (err error) {
	if f.cfg.CatchUp == nil {
		return nil
	}
	end := f.cfg.CatchUp.beginInstall()
	defer end()
	st := f.cfg.CatchUp.cfg.Staging
	seal, ok := st.Sealed()
	if !ok || seal.RaftIndex != h.Applied || seal.To != h.Position.LogEnd {
		return nil // the store says so when it lacks something
	}
	if err := st.Resume(); err != nil {
		return err
	}
	if err := f.installStaged(st, seal, h); err != nil {
		if errors.Is(err, store.ErrStaging) || errors.Is(err, errOtherBytes) { // they are worth nothing; the snapshot is passed over from now on
			return errors.Join(err, st.Clear())
		}
		return err
	}
	return st.Clear()
}

func (f *FSM) installStaged(st *store.Staging, seal store.Seal, h *head) error {
	if _, ok := st.Sealed(); !ok {
		return fmt.Errorf("%w: they end before %d", store.ErrStaging, seal.To)
	}
	from := seal.From
	if !seal.Replaces {
		_, end := f.cfg.Store.LogRange()
		if end >= h.Position.LogEnd {
			return nil
		}
		// Entries may have been applied since the bytes were planned.
		var staged summer
		if err := st.CopyTo(from, end, &staged); err != nil {
			return err
		}
		if own, err := f.cfg.Store.LogSum(from, end); err != nil {
			return err
		} else if own != uint32(staged) {
			return fmt.Errorf("%w: [%d, %d)", errOtherBytes, from, end)
		}
		from = end
	}
	in, err := f.cfg.Store.Install(from, h.Position.LogEnd)
	if err != nil {
		return err
	}
	if err := st.CopyTo(from, h.Position.LogEnd, untilClosed{in, f.cfg.CatchUp.ctx}); err != nil {
		return errors.Join(err, in.Abort())
	}
	return in.Commit(h.Position)
}

// untilClosed ends an installation, which may take minutes, when the node stops.
type untilClosed struct {
	io.Writer
	ctx context.Context
}

// Write implements io.Writer.
func (w untilClosed) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, ErrCatchUpClosed
	}
	return w.Writer.Write(p)
}
