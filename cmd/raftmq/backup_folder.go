package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"raftmq/commitlog/mappedfile"
	"raftmq/fsm"
	"raftmq/fsm/command"
)

// A backup is a folder:
//
//	backup.json             the manifest; the backup is whole when it is there, and is what it says
//	snapshot-<index>        the replicated tables and the log's position at that Raft index (package fsm, head of a snapshot)
//	commitlog/<offset>      log bytes from that offset on, 20 digits, up to the segment's or the log's end
//	cluster.json            whose backup this is, also while the first one is under way
//
// All of it is at one applied index. Log bytes of a cluster never change, so a backup into the same folder fetches only what is new: one that
// was cut goes on, and a later one is incremental. The former manifest stays valid until the new one replaces it.
const (
	backupManifest = "backup.json"
	backupCluster  = "cluster.json"
	backupLogDir   = "commitlog"
	backupFormat   = "raftmq backup"
	backupVersion  = 1
)

var (
	// errBackup: the folder holds no backup, or a damaged one.
	errBackup = errors.New("no whole backup")
	// errBackupVersion: a newer raftmq wrote it.
	errBackupVersion = errors.New("the backup was written by a newer raftmq")
)

// manifest is backup.json, and without its parts cluster.json.
type manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`

	ClusterID   string `json:"clusterId"`
	ClusterName string `json:"clusterName"`
	BrokerName  string `json:"brokerName"`
	SegmentSize int64  `json:"mappedFileSizeCommitLog"`

	ID            string        `json:"id,omitempty"` // random, of this backup
	Time          time.Time     `json:"time,omitzero"`
	Node          string        `json:"node,omitempty"`
	RaftmqVersion string        `json:"raftmqVersion,omitempty"`
	Level         command.Level `json:"level,omitempty"`
	RaftIndex     uint64        `json:"raftIndex,omitempty"`
	RaftTerm      uint64        `json:"raftTerm,omitempty"`
	LogMin        int64         `json:"logMin"`
	LogEnd        int64         `json:"logEnd"`
	Snapshot      backupFile    `json:"snapshot,omitzero"`
	Segments      []backupFile  `json:"segments,omitempty"`
}

// backupFile is one file; Length may be less than the file has, when a later backup was begun.
type backupFile struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset,omitempty"` // physical, of a segment
	Length int64  `json:"length"`
	CRC32C string `json:"crc32c"` // 8 hex digits
}

// sealed is what is written: the manifest and the checksum of its bytes.
type sealed struct {
	Manifest json.RawMessage `json:"manifest"`
	CRC32C   string          `json:"crc32c"`
}

func hexSum(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)) }

func encodeManifest(m *manifest) ([]byte, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(sealed{raw, hexSum(raw)}, "", "  ")
}

// decodeManifest checks what is written, and that its parts make one log.
func decodeManifest(b []byte) (*manifest, error) {
	var s sealed
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", errBackup, err)
	}
	var raw bytes.Buffer
	if err := json.Compact(&raw, s.Manifest); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", errBackup, err)
	}
	m := new(manifest)
	if err := json.Unmarshal(raw.Bytes(), m); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", errBackup, err)
	}
	switch got := hexSum(raw.Bytes()); {
	case m.Format != backupFormat:
		return nil, fmt.Errorf("%w: manifest: format %q, expected %q", errBackup, m.Format, backupFormat)
	case m.Version > backupVersion:
		return nil, fmt.Errorf("%w: version %d, this one reads %d", errBackupVersion, m.Version, backupVersion)
	case got != s.CRC32C:
		return nil, fmt.Errorf("%w: manifest: checksum %s, expected %s", errBackup, got, s.CRC32C)
	}
	return m, nil
}

// check tests that the parts of a whole backup's manifest make one log.
func (m *manifest) check() error {
	at := m.LogMin
	for _, f := range append([]backupFile{m.Snapshot}, m.Segments...) {
		if !filepath.IsLocal(f.Name) || f.Length < 0 || f.Length > 1<<40 {
			return fmt.Errorf("%w: manifest: file %q of %d bytes", errBackup, f.Name, f.Length)
		}
	}
	for _, f := range m.Segments {
		if f.Offset != at || f.Length == 0 {
			return fmt.Errorf("%w: manifest: segment %s is at %d, %d bytes; expected at %d", errBackup, f.Name, f.Offset, f.Length, at)
		}
		at += f.Length
	}
	if at != m.LogEnd || m.LogMin < 0 || m.ID == "" || m.RaftIndex == 0 {
		return fmt.Errorf("%w: manifest: segments end at %d, the log at %d", errBackup, at, m.LogEnd)
	}
	if m.Level > command.Newest {
		return fmt.Errorf("%w: %w", errBackupVersion, command.TooNew(m.Level))
	}
	return nil
}

// readManifest reads one of the two files of a backup's folder; os.ErrNotExist when it is not there.
func readManifest(dir, name string) (*manifest, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return m, nil
}

// openBackup reads a whole backup's manifest and its tables.
func openBackup(dir string) (*manifest, []byte, error) {
	m, err := readManifest(dir, backupManifest)
	if errors.Is(err, os.ErrNotExist) {
		if _, other := os.Stat(filepath.Join(dir, backupCluster)); other == nil {
			return nil, nil, fmt.Errorf("%w in %s: it was not finished; run raftmq cluster backup again, it goes on", errBackup, dir)
		}
		return nil, nil, fmt.Errorf("%w in %s: there is no %s", errBackup, dir, backupManifest)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, nil, err
	}
	head, err := os.ReadFile(filepath.Join(dir, m.Snapshot.Name))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBackup, err)
	}
	if got := hexSum(head); got != m.Snapshot.CRC32C || int64(len(head)) != m.Snapshot.Length {
		return nil, nil, fmt.Errorf("%w: %s has %d bytes with checksum %s, expected %d with %s", errBackup, m.Snapshot.Name, len(head), got, m.Snapshot.Length, m.Snapshot.CRC32C)
	}
	saved, err := fsm.ReadSaved(head)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", m.Snapshot.Name, err)
	}
	if saved.LogMin != m.LogMin || saved.Position.LogEnd != m.LogEnd || saved.Settings.ClusterID != m.ClusterID {
		return nil, nil, fmt.Errorf("%w: %s is of cluster %s, log [%d, %d); the manifest says %s, [%d, %d)", errBackup, m.Snapshot.Name,
			saved.Settings.ClusterID, saved.LogMin, saved.Position.LogEnd, m.ClusterID, m.LogMin, m.LogEnd)
	}
	return m, head, nil
}

// copyLog copies the log's bytes to w, and checks each file.
func (m *manifest) copyLog(dir string, w io.Writer) error {
	for _, f := range m.Segments {
		if err := f.copy(dir, w); err != nil {
			return err
		}
	}
	return nil
}

func (f *backupFile) copy(dir string, w io.Writer) error {
	file, err := os.Open(filepath.Join(dir, f.Name))
	if err != nil {
		return fmt.Errorf("%w: %w", errBackup, err)
	}
	defer file.Close()
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(onlyWriter{io.MultiWriter(w, sum)}, io.LimitReader(file, f.Length), make([]byte, mib))
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	if got := fmt.Sprintf("%08x", sum.Sum32()); n != f.Length || got != f.CRC32C {
		return fmt.Errorf("%w: %s has %d bytes with checksum %s, expected %d with %s", errBackup, f.Name, n, got, f.Length, f.CRC32C)
	}
	return nil
}

// onlyWriter hides other methods, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

func segmentName(offset int64) string {
	return filepath.Join(backupLogDir, fmt.Sprintf("%020d", offset))
}

func snapshotName(index uint64) string { return "snapshot-" + strconv.FormatUint(index, 10) }

// replaceFile replaces a file durably.
func replaceFile(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	return mappedfile.OS{}.SyncDir(filepath.Dir(path))
}
