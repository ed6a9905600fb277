package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"raftmq/seam"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// Node is one raftmq server: a data folder, four addresses and, while it runs, a process.
// Its methods may be called from several goroutines.
type Node struct {
	ID      string // n1, n2, …
	Index   int    // 1, 2, …
	Addrs   Addresses
	DataDir string
	LogPath string // standard output and error of all its lives, appended
	// ShadowDir is where the node keeps what is durable of its files (package seam/shadow), "" if it does not.
	ShadowDir string
	// Flags are further server flags of this node alone, used at the next Start; Env are further NAME=value variables.
	Flags, Env []string

	cluster *Cluster

	mu struct {
		sync.Mutex
		proc     *process
		starts   int
		expected bool // the end of proc was asked for
	}
}

// Args are the server's arguments, without the binary.
func (n *Node) Args() []string {
	c := n.cluster
	var join []string
	for _, peer := range c.nodes {
		if peer != n {
			join = append(join, peer.Addrs.Gossip)
		}
	}
	args := []string{
		"server",
		"--node-id", n.ID,
		"--data-dir", n.DataDir,
		"--client-address", n.Addrs.Client,
		"--raft-address", n.Addrs.Raft,
		"--gossip-address", n.Addrs.Gossip,
		"--http-address", n.Addrs.HTTP,
	}
	switch {
	case n.Index <= c.cfg.Expect && (c.cfg.Expect > 1 || len(join) == 0):
		args = append(args, "--bootstrap-expect", strconv.Itoa(c.cfg.Expect))
	case n.Index <= c.cfg.Expect && n.mu.starts <= 1: // it forms a cluster alone, and the others come to it
		return append(append(append(args, "--bootstrap-expect", "1"), c.cfg.Flags...), n.Flags...)
	}
	if len(join) > 0 {
		args = append(args, "--join", strings.Join(join, ","))
	}
	return append(append(args, c.cfg.Flags...), n.Flags...)
}

// Start starts the process and returns at once. ErrRunning if it is there already.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runningLocked() {
		return fmt.Errorf("%w: %s", ErrRunning, n.ID)
	}
	logFile, err := os.OpenFile(n.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("cluster: log of %s: %w", n.ID, err)
	}
	defer logFile.Close()
	n.mu.starts++
	fmt.Fprintf(logFile, "--- start %d of %s\n", n.mu.starts, n.ID)
	argv := n.cluster.net.Wrap(n.Index, append([]string{n.cluster.cfg.Binary}, n.Args()...))
	env := slices.Concat(inheritedEnv(), n.cluster.cfg.Env, n.Env)
	if n.ShadowDir != "" {
		env = append(env, seam.ShadowEnv+"="+n.ShadowDir)
	}
	p, err := startProcess(argv, env, logFile, n.cluster.cfg.Detached)
	if err != nil {
		return fmt.Errorf("cluster: start %s: %w", n.ID, err)
	}
	n.mu.proc, n.mu.expected = p, false
	return nil
}

// inheritedEnv is this program's environment without what would configure a server.
func inheritedEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RAFTMQ_") || strings.HasPrefix(v, seam.BugEnv+"=") || strings.HasPrefix(v, seam.ShadowEnv+"=")
	})
}

func (n *Node) runningLocked() bool { return n.mu.proc != nil && !n.mu.proc.ended() }

// Running reports whether the process is there (paused or not).
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runningLocked()
}

// Starts counts how often the node was started.
func (n *Node) Starts() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.starts
}

// PID is the process id, 0 while the node does not run.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.runningLocked() {
		return 0
	}
	return n.mu.proc.pid
}

// Done is closed when the current process has ended; closed at once if there is none.
func (n *Node) Done() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.proc == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return n.mu.proc.done
}

// crashed reports whether the process ended without being asked to.
func (n *Node) crashed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.proc != nil && n.mu.proc.ended() && !n.mu.expected
}

// exitError says how the last process ended, with the end of its log.
func (n *Node) exitError() error {
	n.mu.Lock()
	p := n.mu.proc
	n.mu.Unlock()
	if p == nil || !p.ended() {
		return nil
	}
	return fmt.Errorf("%s; log %s ends with:\n%s", p.state, n.LogPath, n.LogTail(2048))
}

// Crashed returns an error with the node's last log lines if its process ended without being
// asked to, else nil.
func (n *Node) Crashed() error {
	if !n.crashed() {
		return nil
	}
	return fmt.Errorf("cluster: %s ended by itself: %w", n.ID, n.exitError())
}

// LogTail returns up to size bytes of the end of the node's log.
func (n *Node) LogTail(size int64) string {
	f, err := os.Open(n.LogPath)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(bytes.ToValidUTF8(b, nil))
}

// signal sends sig to the process. With end set the process is expected to end.
func (n *Node) signal(sig syscall.Signal, end bool) (*process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.runningLocked() {
		return nil, fmt.Errorf("%w: %s", ErrNotRunning, n.ID)
	}
	if end {
		n.mu.expected = true
	}
	p := n.mu.proc
	if err := p.signal(sig); err != nil {
		return nil, fmt.Errorf("cluster: %v to %s: %w", sig, n.ID, err)
	}
	return p, nil
}

// Kill sends SIGKILL and waits for the end. ErrNotRunning if there is no process.
func (n *Node) Kill() error {
	p, err := n.signal(syscall.SIGKILL, true)
	if err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM and waits for the end, at most until ctx ends. An exit status other than
// 0 is an error with the end of the log. A paused node must be resumed first.
func (n *Node) Stop(ctx context.Context) error {
	p, err := n.signal(syscall.SIGTERM, true)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("cluster: %s did not end after SIGTERM: %w", n.ID, ctx.Err())
	}
	if !p.state.Success() {
		return fmt.Errorf("cluster: %s after SIGTERM: %w", n.ID, n.exitError())
	}
	return nil
}

// Pause sends SIGSTOP, Resume SIGCONT.
func (n *Node) Pause() error {
	_, err := n.signal(syscall.SIGSTOP, false)
	return err
}

// Resume sends SIGCONT.
func (n *Node) Resume() error {
	_, err := n.signal(syscall.SIGCONT, false)
	return err
}

// Exit says how the last process ended ("signal: killed", "exit status 1"), "" while it runs
// or before the first start.
func (n *Node) Exit() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.proc == nil || !n.mu.proc.ended() {
		return ""
	}
	return n.mu.proc.state.String()
}

// State is the kernel's state letter of the process (R, S, D, T stopped, …), "" while it does
// not run.
func (n *Node) State() (string, error) {
	pid := n.PID()
	if pid == 0 {
		return "", nil
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("cluster: state of %s: %w", n.ID, err)
	}
	// The name in parentheses may hold anything; the state follows the last one.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 || i+2 >= len(b) {
		return "", fmt.Errorf("cluster: state of %s: unexpected text %q", n.ID, b)
	}
	return string(b[i+2 : i+3]), nil
}

// RSS is the resident memory of the process in bytes, 0 while it does not run.
func (n *Node) RSS() (int64, error) {
	pid := n.PID()
	if pid == 0 {
		return 0, nil
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, fmt.Errorf("cluster: memory of %s: %w", n.ID, err)
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, fmt.Errorf("cluster: memory of %s: unexpected text %q", n.ID, b)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cluster: memory of %s: %w", n.ID, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// Wipe removes the data folder. ErrRunning while the node runs.
func (n *Node) Wipe() error {
	if n.Running() {
		return fmt.Errorf("%w: %s", ErrRunning, n.ID)
	}
	if err := os.RemoveAll(n.DataDir); err != nil {
		return fmt.Errorf("cluster: wipe %s: %w", n.ID, err)
	}
	return n.ForgetShadow()
}

// ForgetShadow removes the shadow of data that was removed or changed from outside: what is there now counts as durable.
func (n *Node) ForgetShadow() error {
	if n.ShadowDir == "" {
		return nil
	}
	if n.Running() {
		return fmt.Errorf("%w: %s", ErrRunning, n.ID)
	}
	if err := os.RemoveAll(n.ShadowDir); err != nil {
		return fmt.Errorf("cluster: shadow of %s: %w", n.ID, err)
	}
	return nil
}

// Dial opens a client connection to the node.
func (n *Node) Dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, n.Addrs.Client)
}

// Status asks the node for its status.
func (n *Node) Status(ctx context.Context) (remoting.NodeStatus, error) {
	return Status(ctx, n.Addrs.Client, -1)
}

// Checksum is Status with the checksum of the log up to the physical offset to.
func (n *Node) Checksum(ctx context.Context, to int64) (remoting.NodeStatus, error) {
	return Status(ctx, n.Addrs.Client, to)
}

// WaitStatus asks the node until ok likes its answer or ctx ends; what names the condition in
// the error.
func (n *Node) WaitStatus(ctx context.Context, what string, ok func(remoting.NodeStatus) bool) (remoting.NodeStatus, error) {
	var last NodeReport
	for {
		actx, cancel := context.WithTimeout(ctx, time.Second)
		last.Status, last.Err = n.Status(actx)
		cancel()
		if last.Err == nil && ok(last.Status) {
			return last.Status, nil
		}
		if err := n.Crashed(); err != nil {
			return last.Status, err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return last.Status, fmt.Errorf("cluster: %s: waiting for %s: %w; %s", n.ID, what, err, describe([]NodeReport{last}))
		}
	}
}

// Status asks the server at a client address for its status; checksumTo ≥ 0 asks for the
// checksum of the log up to that physical offset too.
func Status(ctx context.Context, addr string, checksumTo int64) (remoting.NodeStatus, error) {
	var st remoting.NodeStatus
	c, err := client.Dial(ctx, addr)
	if err != nil {
		return st, fmt.Errorf("cluster: status of %s: %w", addr, err)
	}
	defer c.Close()
	req := &remoting.Command{Code: remoting.RequestNodeStatus}
	if checksumTo >= 0 {
		req.Set("checksumTo", strconv.FormatInt(checksumTo, 10))
	}
	resp, err := c.Invoke(ctx, req)
	if err != nil {
		return st, fmt.Errorf("cluster: status of %s: %w", addr, err)
	}
	if resp.Code != 0 {
		return st, fmt.Errorf("cluster: status of %s: code %d, %s", addr, resp.Code, resp.Remark)
	}
	if err := json.Unmarshal(resp.Body, &st); err != nil {
		return st, fmt.Errorf("cluster: status of %s: %w", addr, err)
	}
	if checksumTo >= 0 && (st.LogChecksum == "" || st.ChecksumTo != checksumTo) {
		return st, fmt.Errorf("cluster: status of %s: no checksum up to %d (got %q up to %d)",
			addr, checksumTo, st.LogChecksum, st.ChecksumTo)
	}
	return st, nil
}
