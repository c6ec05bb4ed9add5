// Package acquirelock is the step that makes a run the only one at work on a
// network.
//
// It guarantees that nothing is changed, and no lock taken, with parameters
// that can't be right; that afterwards the lock is held by this run (also when
// the step is repeated); and that the network's record says who works on it.
// It doesn't renew the lock afterwards: every later step does while it works,
// and the lock's TTL bridges the gaps between steps.
package acquirelock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct {
	step.Common
	LockWait time.Duration `split_words:"true" default:"0s" desc:"how long to wait for a busy lock; 0s: one try"`
}

// Step is acquire-lock.
var Step = step.Define("acquire-lock", "make this run the only one at work on the network",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	s, err := d.Look(ctx) // finds what is wrong with the network's description
	if err != nil {
		return step.Result{}, err
	}
	wanted, err := d.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	if c.DryRun {
		return step.Result{Message: "dry run: the lock is not taken"}, nil
	}
	l, err := d.Lock(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	held, err := l.Acquire(ctx, c.LockWait)
	if err != nil {
		return step.Result{}, err
	}
	op := d.Operation(int32(wanted), held.Token())
	n, err := d.Store.UpdateStatus(ctx, held.Token(), func(n *v1alpha1.ValidatorNetwork) bool {
		network.Begin(n, op, d.Now())
		n.Status.LockHolder = fmt.Sprintf("%s: %s", op.User, op.Type)
		return true
	})
	if err != nil {
		return step.Result{}, errors.Join(err, held.Release(context.WithoutCancel(ctx)))
	}
	s.Network = n
	msg := fmt.Sprintf("%s to %d validators started by %s (%s %s, token %d)",
		op.Type, wanted, op.User, op.Run.Kind, op.Run.Name, op.Token)
	s.Event(ctx, network.Normal, "Started", msg)
	return step.Result{
		Message: msg,
		Outputs: map[string]string{"token": strconv.FormatInt(held.Token(), 10), "lock-id": held.ID(), "validators": strconv.Itoa(wanted)},
	}, nil
}
