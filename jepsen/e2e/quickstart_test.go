package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"raftmq/jepsen"
)

// The README's first command, with fewer messages: it says what became of them, and leaves
// nothing behind.
func TestQuickstart(t *testing.T) {
	long(t)
	parallel(t, 42)
	dir := filepath.Join(t.TempDir(), "cluster")
	// Ports of its own: eight nodes of four ports in a row hold three of ten.
	_, port, err := net.SplitHostPort(freePorts(t, 8).Addresses(1).Client)
	if err != nil {
		t.Fatal(err)
	}
	base, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = jepsen.Quickstart(t.Context(), jepsen.QuickConfig{Messages: 4000, Binary: serverBin(t), Dir: dir, Port: base, Out: &out})
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"acknowledged  ", "consumed  ", "lost  ", "duplicated  ", "seconds without a leader  ",
		"seconds without an acknowledged send  ", "log end", "checksum", "was killed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Count(out.String(), "4000\n") != 2 {
		t.Error("the table does not say 4000 acknowledged and 4000 consumed")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
