package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/fsm/command"
)

func sampleManifest() *manifest {
	return &manifest{Format: backupFormat, Version: backupVersion, ClusterID: "c1", ClusterName: "C", BrokerName: "B", SegmentSize: 4096,
		ID: "b1", Time: time.Date(2026, 5, 7, 1, 2, 3, 0, time.UTC), Node: "n2", RaftmqVersion: "0.1.0", Level: 1, RaftIndex: 9, RaftTerm: 2, LogMin: 4096, LogEnd: 9000,
		Snapshot: backupFile{Name: "snapshot-9", Length: 100, CRC32C: "00000001"},
		Segments: []backupFile{{Name: segmentName(4096), Offset: 4096, Length: 4096, CRC32C: "00000002"}, {Name: segmentName(8192), Offset: 8192, Length: 808, CRC32C: "00000003"}}}
}

// TestManifestFormat holds version 1 still: backups are kept for years.
func TestManifestFormat(t *testing.T) {
	b, err := encodeManifest(sampleManifest())
	if err != nil {
		t.Fatal(err)
	}
	var flat bytes.Buffer
	for line := range strings.Lines(string(b)) {
		flat.WriteString(strings.TrimSpace(line))
	}
	const want = `{"manifest": {"format": "raftmq backup","version": 1,"clusterId": "c1","clusterName": "C","brokerName": "B","mappedFileSizeCommitLog": 4096,` +
		`"id": "b1","time": "2026-05-07T01:02:03Z","node": "n2","raftmqVersion": "0.1.0","level": 1,"raftIndex": 9,"raftTerm": 2,"logMin": 4096,"logEnd": 9000,` +
		`"snapshot": {"name": "snapshot-9","length": 100,"crc32c": "00000001"},"segments": [` +
		`{"name": "commitlog/00000000000000004096","offset": 4096,"length": 4096,"crc32c": "00000002"},` +
		`{"name": "commitlog/00000000000000008192","offset": 8192,"length": 808,"crc32c": "00000003"}]},"crc32c": "d2dfa1dd"}`
	if flat.String() != want {
		t.Errorf("got\n%s\nwant\n%s", flat.String(), want)
	}
	m, err := decodeManifest(b)
	if err != nil || m.check() != nil || fmt.Sprint(m) != fmt.Sprint(sampleManifest()) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestManifestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*manifest)
		corrupt func([]byte) []byte
		want    error
	}{
		"empty":           {corrupt: func([]byte) []byte { return nil }, want: errBackup},
		"cut":             {corrupt: func(b []byte) []byte { return b[:len(b)-2] }, want: errBackup},
		"a flipped bit":   {corrupt: func(b []byte) []byte { return bytes.Replace(b, []byte("9000"), []byte("9001"), 1) }, want: errBackup},
		"other checksum":  {corrupt: func(b []byte) []byte { return bytes.Replace(b, []byte(`"crc32c": "d2`), []byte(`"crc32c": "d3`), 1) }, want: errBackup},
		"no manifest":     {corrupt: func([]byte) []byte { return []byte(`{"crc32c":"00000000"}`) }, want: errBackup},
		"another format":  {change: func(m *manifest) { m.Format = "tar" }, want: errBackup},
		"newer":           {change: func(m *manifest) { m.Version++ }, want: errBackupVersion},
		"higher level":    {change: func(m *manifest) { m.Level = command.Newest + 1 }, want: errBackupVersion},
		"gap":             {change: func(m *manifest) { m.Segments[1].Offset++ }, want: errBackup},
		"segment missing": {change: func(m *manifest) { m.Segments = m.Segments[:1] }, want: errBackup},
		"empty segment":   {change: func(m *manifest) { m.Segments[1].Length = 0 }, want: errBackup},
		"negative":        {change: func(m *manifest) { m.Segments[1].Length = -1 }, want: errBackup},
		"name leads out":  {change: func(m *manifest) { m.Segments[0].Name = "../secret" }, want: errBackup},
		"absolute name":   {change: func(m *manifest) { m.Snapshot.Name = "/etc/passwd" }, want: errBackup},
		"no id":           {change: func(m *manifest) { m.ID = "" }, want: errBackup},
	} {
		m := sampleManifest()
		if tt.change != nil {
			tt.change(m)
		}
		b, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		if tt.corrupt != nil {
			b = tt.corrupt(b)
		}
		if m, err = decodeManifest(b); err == nil {
			err = m.check()
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	b, err := encodeManifest(sampleManifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"manifest":{},"crc32c":"00000000"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		_ = m.check()
		again, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeManifest(again); err != nil || fmt.Sprint(got) != fmt.Sprint(m) {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
	})
}

// TestBackupAndRestoreOneNode: a backup of a node while it runs, what is done with damaged and unfinished ones, and a restore over one that did not end.
func TestBackupAndRestoreOneNode(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, port := filepath.Join(base, "data"), freePorts(t, 3)
	sizes := []string{"--mapped-file-size-commit-log", "1MiB", "--max-hash-slot-num", "1000", "--max-index-num", "2000"}
	s := startServer(t, serverArgs(dir, port, append(sizes, "--bootstrap-expect", "1")...)...)
	s.ready(port)
	at := fmt.Sprintf("--name-servers=127.0.0.1:%d", port)
	lines := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "%05d-%s\n", i, strings.Repeat("x", 900))
		}
		return b.String()
	}
	mustRun(t, "", "topic", "create", "t", "--queues", "2", at)
	mustRun(t, lines(0, 3000), "produce", "--topic", "t", at)
	mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--max", "500", at)

	bk := filepath.Join(base, "backup")
	first := mustRun(t, "", "cluster", "backup", bk, at)
	if !strings.Contains(first, "3.1 MiB copied and 0 B kept") && !strings.Contains(first, "MiB copied and 0 B kept") {
		t.Errorf("first backup: %s", first)
	}
	m, _, err := openBackup(bk)
	if err != nil || len(m.Segments) < 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	mustRun(t, lines(3000, 3100), "produce", "--topic", "t", at)
	second := mustRun(t, "", "cluster", "backup", bk, at)
	if !strings.Contains(second, " KiB copied and ") {
		t.Errorf("a second backup does not copy only what is new: %s", second)
	}
	check := func(want string) {
		t.Helper()
		out, _, err := runTool(t, "", "cluster", "restore", bk, "--check")
		if want == "" && (err != nil || !strings.Contains(out, "is whole")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("--check: %s%v, want %q", out, err, want)
		}
	}
	check("")
	// A damaged file is found, and mended by the next run.
	name := filepath.Join(bk, m.Segments[1].Name)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[1000] ^= 1
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	check(m.Segments[1].Name + " has")
	if out := mustRun(t, "", "cluster", "backup", bk, at); !strings.Contains(out, "is not what the cluster has, it is copied again") {
		t.Errorf("backup over a damaged file: %s", out)
	}
	check("")
	// One that was cut says so, and is gone on with.
	if err := os.Rename(filepath.Join(bk, backupManifest), filepath.Join(base, "manifest")); err != nil {
		t.Fatal(err)
	}
	check("it was not finished")
	if err := os.Truncate(name, 5000); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "", "cluster", "backup", bk, at)
	check("")
	// Strangers' folders are left alone.
	for name, says := range map[string]string{"data": "holds no backup"} {
		if _, _, err := runTool(t, "", "cluster", "backup", filepath.Join(base, name), at); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("backup into %s: %v", name, err)
		}
	}
	restoreTo := func(dir string, more ...string) (string, error) {
		out, _, err := runTool(t, "", append(append([]string{"cluster", "restore", bk, "--data-dir", dir, "--node-id", "n1", "--raft-advertise", fmt.Sprintf("127.0.0.1:%d", port+1)}, sizes...), more...)...)
		return out, err
	}
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--members", "n2=127.0.0.1:1", "--token", "x"}, "must name this node"},
		{[]string{"--members", "n1=127.0.0.1:1"}, "--token"},
		{[]string{"--members", "n1", "--token", "x"}, "allowed are id=host:port"},
		{[]string{"--members", "n1=127.0.0.1:1,n2=127.0.0.1:1", "--token", "x"}, "twice"},
		{[]string{"--cluster-name", "other"}, "--cluster-name is other here and DefaultCluster in this cluster"},
	} {
		if _, err := restoreTo(filepath.Join(base, "refused"), tt.args...); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v", tt.args, err)
		}
	}
	if _, err := restoreTo(dir); err == nil || !strings.Contains(err.Error(), "is a node's folder") {
		t.Errorf("restore over a node: %v", err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.done

	// A restore that ended just before its last step, and one that had only begun: no node starts with either, and another restore does it all.
	again := filepath.Join(base, "again")
	if out, err := restoreTo(again); err != nil || !strings.Contains(out, "as node n1 of the new cluster") {
		t.Fatalf("%s%v", out, err)
	}
	for _, cut := range []string{identityFile, "raft"} {
		if err := os.WriteFile(filepath.Join(again, restoreMarker), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{identityFile, cut} {
			if err := os.RemoveAll(filepath.Join(again, name)); err != nil {
				t.Fatal(err)
			}
		}
		broken := startServer(t, serverArgs(again, port, sizes...)...)
		if status := broken.exit(); status != 1 || !strings.Contains(broken.stderr.String(), "give raftmq cluster restore again") {
			t.Fatalf("status %d: %s", status, broken.stderr.String())
		}
		if out, err := restoreTo(again); err != nil {
			t.Fatalf("%s%v", out, err)
		}
	}
	r := startServer(t, serverArgs(again, port, sizes...)...)
	r.ready(port)
	if out := mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--max", "2600", at); strings.Count(out, "\n") != 2600 {
		t.Errorf("the group gets %d messages of the 2600 that it had not had", strings.Count(out, "\n"))
	}
	mustRun(t, "one more\n", "produce", "--topic", "t", at)
	if out := mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--max", "1", at); out != "one more\n" {
		t.Errorf("after the restored ones comes %q", out)
	}
	mustRun(t, "", "cluster", "verify", at)
	// It is another cluster now, and its backup does not go into the folder of the old one's.
	if _, _, err := runTool(t, "", "cluster", "backup", bk, at); err == nil || !strings.Contains(err.Error(), "name another folder") {
		t.Errorf("backup of the new cluster over the old one's: %v", err)
	}
}
