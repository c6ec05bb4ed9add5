package localnet

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// node is one node's process, or none.
type node struct {
	logPath string
	cmd     *exec.Cmd
	// done is closed when the process has ended and been waited for.
	done chan struct{}
}

// onSpawner runs functions on one thread that lives as long as this process.
// The kernel ties Pdeathsig to the thread that started the child, not to the
// process, so children must not be started from a thread that may end.
var onSpawner = sync.OnceValue(func() func(func()) {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return func(f func()) {
		finished := make(chan struct{})
		work <- func() { f(); close(finished) }
		<-finished
	}
})

func (n *node) start(binary string, args ...string) error {
	if n.running() {
		return fmt.Errorf("start node: it runs already, pid %d", n.cmd.Process.Pid)
	}
	log, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open node log: %w", err)
	}
	defer func() { _ = log.Close() }()   // the node has its own
	cmd := exec.Command(binary, args...) //nolint:noctx // it ends with its network, or by a test's hand
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	onSpawner()(func() { err = cmd.Start() })
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	done := make(chan struct{})
	go func() {
		// The exit code is in cmd.ProcessState.
		_ = cmd.Wait()
		close(done)
	}()
	n.cmd, n.done = cmd, done
	return nil
}

func (n *node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// stop sends a signal and waits for the end, for at most patience; after that
// the process is killed and an error returned.
func (n *node) stop(sig syscall.Signal, patience time.Duration) (*os.ProcessState, error) {
	if !n.running() {
		return nil, fmt.Errorf("stop node: it does not run")
	}
	if err := n.cmd.Process.Signal(sig); err != nil {
		return nil, fmt.Errorf("stop node: %w", err)
	}
	select {
	case <-n.done:
		return n.cmd.ProcessState, nil
	case <-time.After(patience):
	}
	if err := n.cmd.Process.Kill(); err != nil {
		return nil, fmt.Errorf("kill node: %w", err)
	}
	<-n.done
	return n.cmd.ProcessState, fmt.Errorf("stop node: still running %s after %s; killed", patience, sig)
}
