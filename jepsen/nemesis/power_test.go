package nemesis

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"raftmq/jepsen/cluster"
)

// Bits rot where something is written, however many empty files of what comes next lie beside it; where nothing is, the fault had no effect.
func TestRotFlipsWhatIsWritten(t *testing.T) {
	for seed := range uint64(20) {
		n := &cluster.Node{ID: "n1", DataDir: t.TempDir()}
		dir := filepath.Join(n.DataDir, "store", "commitlog")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		strike := func() error {
			_, err := rot(t.Context(), &site{target: n, rng: rand.New(rand.NewPCG(seed, 0))})
			return err
		}
		if err := strike(); !errors.Is(err, ErrNoEffect) {
			t.Errorf("seed %d, no file: %v", seed, err)
		}
		empty := make([]byte, 4096)
		for _, name := range []string{"1", "2", "3"} {
			if err := os.WriteFile(filepath.Join(dir, name), empty, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := strike(); !errors.Is(err, ErrNoEffect) {
			t.Errorf("seed %d, empty files: %v", seed, err)
		}
		content := append(bytes.Repeat([]byte{7}, 2048), empty...)
		if err := os.WriteFile(filepath.Join(dir, "2"), content, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := strike(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for name, want := range map[string][]byte{"1": empty, "2": content, "3": empty} {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || bytes.Equal(got, want) != (name != "2") {
				t.Errorf("seed %d: %s is changed: %v, %v", seed, name, !bytes.Equal(got, want), err)
			}
		}
	}
}
