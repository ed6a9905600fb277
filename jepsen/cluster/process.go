package cluster

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one started server. done is closed when it has ended and state is set.
type process struct {
	pid   int
	proc  *os.Process
	done  chan struct{}
	state *os.ProcessState
}

// startProcess starts argv with stdout and stderr going to log. Unless detached, the kernel
// kills the process when this program ends, however it ends.
func startProcess(argv, env []string, log *os.File, detached bool) (*process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: an interrupt typed at the terminal goes to the harness only, which
	// then ends the nodes itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if detached {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	} else {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Pdeathsig fires when the thread that forked ends, not the program, so that thread
		// is kept for as long as the process lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.proc, p.pid = cmd.Process, cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		// The error repeats the state; there are no copying goroutines that could fail.
		_ = cmd.Wait()
		p.state = cmd.ProcessState
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal never reaches a foreign process: os.Process refuses once Wait has returned.
func (p *process) signal(sig syscall.Signal) error { return p.proc.Signal(sig) }
