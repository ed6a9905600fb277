package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BinaryEnv names the environment variable with a ready raftmq executable; it replaces
// building one.
const BinaryEnv = "RAFTMQ_BIN"

// Build builds raftmq into dir and returns its path, or returns the path in BinaryEnv if that
// is set. Further flags go to go build ("-race"); with flags the variable is not looked at.
func Build(ctx context.Context, dir string, flags ...string) (string, error) {
	if bin := os.Getenv(BinaryEnv); bin != "" && len(flags) == 0 {
		abs, err := filepath.Abs(bin)
		if err != nil {
			return "", fmt.Errorf("cluster: %s: %w", BinaryEnv, err)
		}
		if _, err := os.Stat(abs); err != nil {
			return "", fmt.Errorf("cluster: %s: %w", BinaryEnv, err)
		}
		return abs, nil
	}
	name := "raftmq"
	for _, f := range flags {
		name += "-" + strings.Trim(f, "-")
	}
	bin := filepath.Join(dir, name)
	args := append(append([]string{"build"}, flags...), "-o", bin, "raftmq/cmd/raftmq")
	cmd := exec.CommandContext(ctx, "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cluster: go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return bin, nil
}
