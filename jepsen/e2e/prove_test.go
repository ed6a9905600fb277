package e2e

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/seam"
)

// seamBinary is a server in which bugs can be planted.
var seamBinary = sync.OnceValues(func() (string, error) { return cluster.Build(context.Background(), binDir, "-tags="+seam.Tag) })

func seamBin(t *testing.T) string {
	t.Helper()
	bin, err := seamBinary()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// A few planted bugs are found, and the same runs without them are clean: the harness would notice. `chaos prove` plants all of them.
func TestPlantedBugsAreFound(t *testing.T) {
	long(t)
	t.Parallel()
	quick := map[seam.Bug]bool{seam.DoubleSend: false, seam.HalfBatch: false, seam.SkipRaftSync: true} // true: run without it as well
	for _, proof := range jepsen.Proofs() {
		control, ok := quick[proof.Bug]
		if !ok {
			continue
		}
		delete(quick, proof.Bug)
		t.Run(string(proof.Bug), func(t *testing.T) {
			parallel(t, 55)
			proof.Time = min(proof.Time, 8*time.Second)
			p := &jepsen.Prover{Binary: seamBin(t), Dir: t.TempDir(), Tries: 2, Seed: 1, Control: control, Logf: t.Logf}
			got, err := p.Prove(withTimeout(t, 4*time.Minute), proof)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Found {
				t.Errorf("not found in %d runs; what was found instead: %q", got.Tries, got.Got)
			}
			if len(got.Clean) > 0 {
				t.Errorf("without the bug: %q", got.Clean)
			}
		})
	}
	if len(quick) > 0 {
		t.Errorf("no proofs for %v", quick)
	}
}

// Every bug has a proof, and a server that is built as usual has no bug in it that could be planted.
func TestSeamIsOutOfOrdinaryServers(t *testing.T) {
	long(t)
	proofs := map[seam.Bug]bool{}
	for _, p := range jepsen.Proofs() {
		proofs[p.Bug] = true
	}
	for _, b := range seam.Bugs() {
		if !proofs[b] {
			t.Errorf("%s has no proof", b)
		}
	}
	has := func(bin string) bool {
		b, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, []byte(seam.BugEnv))
	}
	if has(serverBin(t)) {
		t.Errorf("%s is in an ordinary server", seam.BugEnv)
	}
	if !has(seamBin(t)) {
		t.Errorf("%s is not in a server with the seam", seam.BugEnv)
	}
}
