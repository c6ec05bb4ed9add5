// Package supervisor keeps a set of programs running: it starts them when
// what they need is there, starts them again when they end, and lets a test
// stop, start, restart, freeze and thaw each of them over a Unix socket.
//
// It guarantees that a stopped component stays stopped, that restarts are
// spaced by a bounded growing delay, and that no program outlives Run.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
)

const (
	minDelay = 250 * time.Millisecond
	maxDelay = 10 * time.Second
	// steady is how long a program must have run for the delay to begin anew.
	steady = 30 * time.Second
)

// ErrUnknown is returned for a component that doesn't exist here.
var ErrUnknown = errors.New("no such component")

// Component is a program to keep running.
type Component struct {
	Name string
	Path string
	Args []string
	Env  []string
	// Log is the file that gets the program's output.
	Log string
	// Wait returns once the program may be started; nil means at once. It is
	// called before each start.
	Wait func(context.Context) error
	// StopLimit is the time between SIGTERM and SIGKILL.
	StopLimit time.Duration
}

// Status is a component's state at a moment.
type Status struct {
	Name string `json:"name"`
	// State is one of running, frozen, stopped, waiting (for what it needs, or
	// before a restart).
	State string `json:"state"`
	// PID in the supervisor's pid namespace, 0 unless running or frozen.
	PID int `json:"pid"`
	// Since the program was started.
	Since time.Time `json:"since,omitzero"`
	// Restarts that weren't asked for.
	Restarts int `json:"restarts"`
	// LastError is why the program ended last, or couldn't be started.
	LastError string `json:"lastError,omitempty"`
}

// The values of Status.State.
const (
	Running = "running"
	Frozen  = "frozen"
	Stopped = "stopped"
	Waiting = "waiting"
)

// Supervisor runs components.
type Supervisor struct {
	table *proc.Table
	log   *slog.Logger
	units []*unit
}

// New returns a supervisor of the components, none of which is started yet.
func New(table *proc.Table, log *slog.Logger, components []Component) *Supervisor {
	s := &Supervisor{table: table, log: log}
	for _, c := range components {
		s.units = append(s.units, &unit{
			Component: c, table: table, log: log.With("component", c.Name),
			wanted: true, changed: make(chan struct{}),
		})
	}
	return s
}

// Run keeps the components running until ctx ends, then stops them in the
// reverse of the given order and returns.
func (s *Supervisor) Run(ctx context.Context) {
	var done sync.WaitGroup
	for _, u := range s.units {
		done.Add(1)
		go func() {
			defer done.Done()
			u.run(context.WithoutCancel(ctx))
		}()
	}
	<-ctx.Done()
	for i := len(s.units) - 1; i >= 0; i-- {
		s.units[i].end()
	}
	done.Wait()
}

// Statuses in the order in which the components were given.
func (s *Supervisor) Statuses() []Status {
	all := make([]Status, 0, len(s.units))
	for _, u := range s.units {
		all = append(all, u.status())
	}
	return all
}

// Do carries out an action on a component and returns when it is done: for
// stop when the program has ended, for start and restart when it runs.
func (s *Supervisor) Do(ctx context.Context, name string, a Action) error {
	for _, u := range s.units {
		if u.Name == name {
			s.log.Info("asked", "component", name, "action", a)
			return u.do(ctx, a)
		}
	}
	return fmt.Errorf("%s %s: %w", a, name, ErrUnknown)
}

// Action is something that can be done to a component.
type Action string

// The actions. Kill is SIGKILL, after which the supervisor starts the program
// again as after a crash.
const (
	Start   Action = "start"
	Stop    Action = "stop"
	Restart Action = "restart"
	Freeze  Action = "freeze"
	Thaw    Action = "thaw"
	Kill    Action = "kill"
)

// unit is one component's state machine. Only its own goroutine (run) starts
// and ends its program.
type unit struct {
	Component
	table *proc.Table
	log   *slog.Logger

	mu       sync.Mutex
	wanted   bool
	ending   bool
	frozen   bool
	process  *proc.Process
	since    time.Time
	restarts int
	last     string
	// changed is closed and replaced at each change of the above.
	changed chan struct{}
}

// set changes the unit's state and wakes whoever waits for a change.
func (u *unit) set(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
	close(u.changed)
	u.changed = make(chan struct{})
}

// await returns when cond holds. cond is called with the state locked.
func (u *unit) await(ctx context.Context, cond func() bool) error {
	for {
		u.mu.Lock()
		ok, changed := cond(), u.changed
		u.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (u *unit) end() {
	u.set(func() { u.ending, u.wanted = true, false })
	// Never longer than the unit's own limits, which run enforces.
	_ = u.await(context.Background(), func() bool { return u.process == nil })
}

func (u *unit) status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := Status{Name: u.Name, Restarts: u.restarts, LastError: u.last}
	switch {
	case u.process != nil && u.frozen:
		s.State = Frozen
	case u.process != nil:
		s.State = Running
	case u.wanted:
		s.State = Waiting
	default:
		s.State = Stopped
	}
	if u.process != nil {
		s.PID, s.Since = u.process.PID, u.since
	}
	return s
}

func (u *unit) do(ctx context.Context, a Action) error {
	stopped := func() bool { return u.process == nil }
	started := func() bool { return u.process != nil }
	switch a {
	case Stop:
		u.set(func() { u.wanted = false })
		return u.await(ctx, stopped)
	case Start:
		u.set(func() { u.wanted = !u.ending })
		return u.await(ctx, started)
	case Restart:
		if err := u.do(ctx, Stop); err != nil {
			return err
		}
		return u.do(ctx, Start)
	case Freeze:
		return u.signal(syscall.SIGSTOP, true)
	case Thaw:
		return u.signal(syscall.SIGCONT, false)
	case Kill:
		return u.signal(syscall.SIGKILL, false)
	default:
		return fmt.Errorf("unknown action %q", a)
	}
}

// signal sends a signal to the program and notes whether it is frozen now.
func (u *unit) signal(s syscall.Signal, frozen bool) error {
	var err error
	u.set(func() {
		if u.process == nil {
			err = fmt.Errorf("signal %s: not running", u.Name)
			return
		}
		if err = u.process.Signal(s); err == nil {
			u.frozen = frozen
		}
	})
	return err
}

// run is the life of the component until end is called.
func (u *unit) run(ctx context.Context) {
	delay := minDelay
	for {
		if err := u.await(ctx, func() bool { return u.wanted || u.ending }); err != nil || u.isEnding() {
			return
		}
		began := time.Now()
		err := u.once(ctx)
		if err == nil { // asked to stop
			delay = minDelay
			continue
		}
		if time.Since(began) > steady {
			delay = minDelay
		}
		u.set(func() { u.last = err.Error(); u.restarts++ })
		u.log.Warn("ended", "error", err, "again in", delay)
		pause, cancel := context.WithTimeout(ctx, delay)
		_ = u.await(pause, func() bool { return !u.wanted })
		cancel()
		delay = min(2*delay, maxDelay)
	}
}

func (u *unit) isEnding() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ending
}

// once runs the program to its end: nil if it was asked to stop, otherwise why
// it ended or couldn't be started.
func (u *unit) once(ctx context.Context) error {
	unwanted, cancel := u.whileWanted(ctx)
	defer cancel()
	if u.Wait != nil {
		if err := u.Wait(unwanted); err != nil {
			if unwanted.Err() != nil {
				return nil
			}
			return fmt.Errorf("wait for what it needs: %w", err)
		}
	}
	p, err := u.start()
	if err != nil {
		return err
	}
	u.set(func() { u.process, u.since, u.frozen = p, time.Now(), false })
	defer u.set(func() { u.process = nil })
	u.log.Info("started", "pid", p.PID)
	select {
	case <-p.Done():
		if err := p.Err(); err != nil {
			return err
		}
		return errors.New("ended with exit code 0")
	case <-unwanted.Done():
	}
	return u.terminate(p)
}

// whileWanted returns a context that ends when the component is no longer
// wanted.
func (u *unit) whileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_ = u.await(ctx, func() bool { return !u.wanted })
		cancel()
	}()
	return ctx, cancel
}

func (u *unit) start() (*proc.Process, error) {
	out, err := os.OpenFile(u.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	return u.table.Start(proc.Spec{Path: u.Path, Args: u.Args, Env: u.Env, Stdout: out, Stderr: out})
}

// terminate stops the program: SIGTERM, and SIGKILL after the limit.
func (u *unit) terminate(p *proc.Process) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	// A frozen program gets SIGTERM only when it goes on.
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	limit := time.NewTimer(u.StopLimit)
	defer limit.Stop()
	select {
	case <-p.Done():
		return nil
	case <-limit.C:
	}
	u.log.Warn("killing", "after", u.StopLimit)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done() // SIGKILL can't be refused
	return nil
}
