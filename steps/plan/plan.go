// Package plan is the step that says what an operation will do, and refuses one
// that would endanger the network, before anything is changed.
//
// It guarantees that a refused plan changed nothing, and that an accepted one
// is recorded as the network's wish. With dryRun it works without the lock and
// records nothing.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct{ step.Common }

// Step is plan.
var Step = step.Define("plan", "say what the operation will do, and refuse it if it endangers the network",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	return d.Work(ctx, c.DryRun, work)
}

func work(ctx context.Context, s *step.Session) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	power, err := s.Adapter.Power(s.Network.Spec.Stake.Amount)
	if err != nil {
		return step.Result{}, err
	}
	c, err := s.Taker.Take(ctx, census.Options{Wanted: wanted})
	if err != nil {
		return step.Result{}, err
	}
	p, err := plan.Make(s.Network, c, string(s.Common.Operation), wanted, power)
	if err != nil {
		return step.Result{}, err
	}
	if err := p.Write(os.Stdout); err != nil {
		return step.Result{}, fmt.Errorf("write plan: %w", err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		return step.Result{}, fmt.Errorf("encode plan: %w", err)
	}
	res := step.Result{Message: summary(p), Outputs: map[string]string{"plan": string(b)}}
	if s.Held == nil {
		return res, nil
	}
	// Before the wish is on record: what may not be done must change nothing.
	if wanted != p.Replicas {
		if err := s.Taker.Workload.MayScale(ctx, wanted); err != nil {
			return step.Result{}, err
		}
	}
	if s.Network.Spec.Validators != int32(wanted) {
		if s.Network, err = s.Store.SetWanted(ctx, s.Held.Token(), int32(wanted)); err != nil {
			return step.Result{}, err
		}
	}
	if !p.Empty() {
		s.Event(ctx, network.Normal, "Planned", res.Message)
	}
	return res, nil
}

func summary(p *plan.Plan) string {
	if p.Empty() {
		return fmt.Sprintf("nothing to do: %d validators run and are in consensus", p.Replicas)
	}
	return fmt.Sprintf("%s from %d to %d: %d pods to start, %d transactions in %d batches, %d pods to stop",
		p.Operation, p.Replicas, p.Wanted, len(p.Added), len(p.Changes), len(p.Batches), len(p.Removed))
}
