package consumequeue

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// untar reads a golden archive: file name to content.
func untar(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Clean(h.Name)] = b
	}
}

// manifest is what the golden stores' description says of their queues.
type manifest struct {
	ConsumeQueues map[string]struct {
		Files []struct {
			File    string
			Size    int64
			Entries int
		}
		Entries [][4]int64 // index, physical offset, size, tags code
	}
}

// TestGolden writes the units of each queue of real RocketMQ stores (4.9.4 and 5.3.3, files
// of 50 units) and expects RocketMQ's files, byte for byte.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) < 3 {
		t.Fatalf("golden manifests: %v %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var m manifest
			b, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(b, &m)
			}
			if err != nil {
				t.Fatal(err)
			}
			golden := untar(t, strings.TrimSuffix(path, ".json")+".tar.gz")
			w := newWorld(t)
			for _, k := range slices.Sorted(maps.Keys(m.ConsumeQueues)) {
				topic, id, _ := strings.Cut(k, "/")
				var n int32
				fmt.Sscan(id, &n)
				for _, e := range m.ConsumeQueues[k].Entries {
					u := Unit{PhyOffset: e[1], Size: int32(e[2]), TagsCode: e[3]}
					if u.IsFiller() {
						continue
					}
					if err := w.batch.Add([]byte(topic), n, e[0], u); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.write()
			found := 0
			for name, want := range golden {
				if !strings.HasPrefix(name, "consumequeue/") {
					continue
				}
				found++
				got, err := os.ReadFile(filepath.Join(w.dir, strings.TrimPrefix(name, "consumequeue/")))
				if err != nil {
					t.Error(err)
				} else if string(got) != string(want) {
					t.Errorf("%s differs", name)
				}
			}
			if found < 10 {
				t.Fatalf("only %d queue files in the archive", found)
			}
		})
	}
}
