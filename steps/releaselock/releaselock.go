// Package releaselock is the step that ends a run.
//
// It guarantees that the lock is free afterwards if this run still held it, and
// that a run which ended without success is recorded as failed. It never
// touches a lock that somebody else holds, so it is safe as the exit handler of
// a run that never got the lock. Correctness doesn't depend on it: a lock whose
// run is gone is taken over.
package releaselock

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct{ step.Common }

// Step is release-lock.
var Step = step.Define("release-lock", "free the lock if this run still holds it",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: no lock was taken"}, nil
	}
	n, err := d.Store.Get(ctx)
	if err != nil {
		return step.Result{}, err
	}
	l, err := d.Lock(n)
	if err != nil {
		return step.Result{}, err
	}
	held, err := l.Attach(ctx)
	if fault.Is(err, fault.LockLost) {
		return step.Result{Message: "this run doesn't hold the lock: " + step.Line(err)}, nil
	}
	if err != nil {
		return step.Result{}, err
	}
	if _, err := d.Store.UpdateStatus(ctx, held.Token(), func(n *v1alpha1.ValidatorNetwork) bool {
		n.Status.LockHolder = ""
		if op := n.Status.LastOperation; op != nil && op.Phase == v1alpha1.OperationRunning {
			network.Fail(n, c.RunUID, "", fault.Unexpected.String(), "the run ended without a word in step "+op.Step, d.Now())
		}
		return true
	}); err != nil {
		d.Log.Warn("the end of the run is not recorded", "error", err)
	}
	if err := held.Release(ctx); err != nil {
		return step.Result{}, err
	}
	return step.Result{Message: fmt.Sprintf("lock released (token %d)", held.Token())}, nil
}
