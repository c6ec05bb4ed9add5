// Package savestate is the step that writes down what the network is now.
//
// It guarantees that what it writes was read from the chain and the cluster in
// this very step, that a writer with a newer token is never overwritten, and
// that the operation is marked as succeeded only then. It never writes keys,
// nor what the StatefulSet says by itself.
package savestate

import (
	"context"
	"fmt"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct{ step.Common }

// Step is save-state.
var Step = step.Define("save-state", "write down what the network is now and that the operation is done",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing to save"}, nil
	}
	return d.Work(ctx, false, work)
}

func work(ctx context.Context, s *step.Session) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	c, err := s.Taker.Take(ctx, census.Options{Wanted: wanted})
	if err != nil {
		return step.Result{}, err
	}
	var msg string
	n, err := s.Store.UpdateStatus(ctx, s.Held.Token(), func(n *v1alpha1.ValidatorNetwork) bool {
		network.Record(n, c)
		msg = fmt.Sprintf("%s to %d validators done at height %d: %d bonded, %d signing", s.Common.Operation, wanted, c.Height, n.Status.Bonded, n.Status.Signing)
		network.Succeed(n, s.Common.RunUID, s.Step, msg, s.Now())
		return true
	})
	if err != nil {
		return step.Result{}, err
	}
	s.Network = n
	s.Event(ctx, network.Normal, "Succeeded", msg)
	return step.Result{Message: msg}, nil
}
