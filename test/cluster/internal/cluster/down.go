package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/api"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// Down stops the cluster and removes everything of it; with keepState the
// state folder stays, so that an Up continues where this cluster was. A cluster
// that doesn't run, or doesn't exist, is no error.
func (c *Cluster) Down(ctx context.Context, keepState bool) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	spec, err := c.dir.Spec()
	if errors.Is(err, fs.ErrNotExist) {
		c.opts.Log("cluster %s doesn't exist: nothing to do", c.opts.Name)
		return nil
	}
	if err != nil {
		return err
	}
	run, err := c.dir.Run()
	if err != nil {
		return err
	}
	began := time.Now()
	if run.Daemon.Alive() {
		if err := run.Daemon.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		if err := api.WaitFor(ctx, "the daemon to stop", daemonStopLimit, gone(run.Daemon.Alive)); err != nil {
			c.opts.Log("%v: killing it", err)
		}
	}
	if err := c.clear(ctx, spec, run); err != nil {
		return err
	}
	if !keepState {
		if err := c.dir.Remove(); err != nil {
			return err
		}
	}
	c.opts.Log("cluster %s is down after %.1f s", c.opts.Name, time.Since(began).Seconds())
	return nil
}

var errAlive = errors.New("still running")

func gone(alive func() bool) func(context.Context) error {
	return func(context.Context) error {
		if alive() {
			return errAlive
		}
		return nil
	}
}

// clear ends by force what a run left, and removes its traces outside the
// state folder and its run record.
func (c *Cluster) clear(ctx context.Context, spec state.Spec, run state.Run) error {
	const killLimit = 20 * time.Second
	// The sandbox's first process takes everything in its pid namespace along.
	for _, p := range []struct {
		what string
		id   interface {
			Alive() bool
			Signal(syscall.Signal) error
		}
	}{{"the sandbox", run.Init}, {"the daemon", run.Daemon}} {
		if !p.id.Alive() {
			continue
		}
		if err := p.id.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		if err := api.WaitFor(ctx, p.what+" to end", killLimit, gone(p.id.Alive)); err != nil {
			return err
		}
	}
	if spec.Mode == state.Full {
		if err := removeCgroups(ctx, c.dir, spec); err != nil {
			return fmt.Errorf("remove control groups: %w", err)
		}
	}
	return c.dir.RemoveRun()
}
