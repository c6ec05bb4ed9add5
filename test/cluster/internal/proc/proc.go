// Package proc starts child processes and learns of their end.
//
// It guarantees that a child never outlives this process, however this
// process ends: the kernel sends SIGKILL to every child at that moment. It
// reaps every child of this process, also those that it didn't start but
// inherited, so it is fit for the first process of a pid namespace.
//
// It does not guarantee anything about grandchildren: they are killed only if
// the caller made a pid namespace. Since it reaps everything, os/exec must not
// be used in the same process while a Table is open.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// Spec says what to run.
type Spec struct {
	// Path of the program; Args[0] is the name it sees.
	Path string
	Args []string
	Env  []string
	Dir  string
	// Stdin, Stdout and Stderr; nil means /dev/null.
	Stdin, Stdout, Stderr *os.File
	// Extra files become descriptors 3, 4, ...
	Extra []*os.File
	// Cloneflags are the namespaces to make for the child.
	Cloneflags uintptr
}

// Process is a started child.
type Process struct {
	PID  int
	done chan struct{}
	// status is written once, before done is closed.
	status syscall.WaitStatus
}

// Done is closed once the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells how the process ended, nil for exit code 0. It may be called only
// after Done is closed.
func (p *Process) Err() error {
	switch {
	case p.status.Signaled():
		return fmt.Errorf("killed by %s", p.status.Signal())
	case p.status.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", p.status.ExitStatus())
	default:
		return nil
	}
}

// Signal sends a signal; a process that has ended already is no error.
func (p *Process) Signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// Table starts processes and reaps them.
type Table struct {
	mu       sync.Mutex
	running  map[int]*Process
	start    chan func()
	children chan os.Signal
}

// NewTable starts the reaper. One table per process.
func NewTable() *Table {
	t := &Table{
		running:  map[int]*Process{},
		start:    make(chan func()),
		children: make(chan os.Signal, 1),
	}
	signal.Notify(t.children, syscall.SIGCHLD)
	go t.reap()
	// The parent-death signal is tied to the thread that forked, so all forks
	// happen on one thread that lives as long as the process.
	go func() {
		runtime.LockOSThread()
		for f := range t.start {
			f()
		}
	}()
	return t
}

// Start runs a program. It returns once the program has been executed, or
// with the error of trying.
func (t *Table) Start(s Spec) (*Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer null.Close()
	files := []uintptr{}
	for _, f := range append([]*os.File{s.Stdin, s.Stdout, s.Stderr}, s.Extra...) {
		if f == nil {
			f = null
		}
		files = append(files, f.Fd())
	}
	attr := &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Pdeathsig:  syscall.SIGKILL,
			Cloneflags: s.Cloneflags,
		},
	}
	type result struct {
		p   *Process
		err error
	}
	out := make(chan result, 1)
	t.start <- func() {
		// Held across the fork, so that the reaper can't see the end of a
		// process that isn't in the table yet.
		t.mu.Lock()
		defer t.mu.Unlock()
		pid, err := syscall.ForkExec(s.Path, s.Args, attr)
		if err != nil {
			out <- result{err: fmt.Errorf("run %s: %w", s.Path, err)}
			return
		}
		p := &Process{PID: pid, done: make(chan struct{})}
		t.running[pid] = p
		out <- result{p: p}
	}
	r := <-out
	runtime.KeepAlive(s)
	return r.p, r.err
}

func (t *Table) reap() {
	for range t.children {
		for t.reapOne() {
		}
	}
}

// reapOne reports whether a child was reaped.
func (t *Table) reapOne() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if errors.Is(err, syscall.EINTR) {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if p, ok := t.running[pid]; ok {
		delete(t.running, pid)
		p.status = status
		close(p.done)
	}
	return true
}
