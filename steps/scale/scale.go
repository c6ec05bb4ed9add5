// Package scale is the step that sets the number of the StatefulSet's replicas.
//
// It guarantees that no pod is taken away whose key is still in the consensus
// set or staked, and that no pod is started whose key signed one of the last
// 20 commits from somewhere else: two processes with one key double-sign. The
// change carries the run's fencing token and is refused after a newer run's.
// It doesn't wait for the pods: wait-ready does.
package scale

import (
	"context"
	"fmt"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// guardCommits is how many last commits a key must not have signed before its
// pod starts (CHAINS 4.4, rule 1).
const guardCommits = 20

// Config of the step.
type Config struct{ step.Common }

// Step is scale.
var Step = step.Define("scale", "set the number of validator pods, when that is safe",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing is scaled"}, nil
	}
	ctx, s, done, err := d.Hold(ctx)
	if err != nil {
		return step.Result{}, err
	}
	res, err := work(ctx, s)
	return res, done(err)
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
	from := c.Replicas()
	if err := plan.Direction(string(s.Common.Operation), wanted, from); err != nil {
		return step.Result{}, err
	}
	if err := mayStop(c, wanted); err != nil {
		return step.Result{}, err
	}
	if err := mayStart(ctx, s, c, wanted); err != nil {
		return step.Result{}, err
	}
	changed, err := s.Taker.Workload.Scale(ctx, wanted, s.Held.Token(), s.Held.Check)
	if err != nil {
		return step.Result{}, err
	}
	if !changed {
		return step.Result{Message: fmt.Sprintf("%d pods are asked for already", wanted)}, nil
	}
	msg := fmt.Sprintf("StatefulSet %s scaled from %d to %d at height %d", s.Network.Spec.Workload.StatefulSet, from, wanted, c.Height)
	s.Event(ctx, network.Normal, "Scaled", msg)
	return step.Result{Message: msg}, nil
}

// mayStop refuses to take away a pod that consensus still counts on.
func mayStop(c *census.Census, wanted int) error {
	var in, staked []string
	for _, v := range c.Validators {
		if v.Ordinal < wanted || v.Ordinal >= c.Replicas() {
			continue
		}
		switch s := v.Record.Status; {
		case v.Member != nil:
			in = append(in, fmt.Sprintf("validator %d (power %d)", v.Ordinal, v.Member.Power))
		case s == chain.Bonded || s == chain.Waiting: // may be in the set with the next block
			staked = append(staked, fmt.Sprintf("validator %d (%s)", v.Ordinal, s))
		}
	}
	if len(in) == 0 && len(staked) == 0 {
		return nil
	}
	why := "the consensus set still has " + strings.Join(in, ", ")
	if len(in) == 0 {
		why = "a stake is still held by " + strings.Join(staked, ", ")
	}
	return fault.New(fault.Refused, "at height %d %s of the pods to be stopped; %s", c.Height, why, c.Power).
		Do("unstake them first: run scale-down")
}

// mayStart refuses to start a second process for a key that signs elsewhere.
func mayStart(ctx context.Context, s *step.Session, c *census.Census, wanted int) error {
	var fresh []census.Validator
	for _, v := range c.Validators {
		if v.Ordinal >= c.Replicas() && v.Ordinal < wanted {
			if v.Pod != nil {
				return fault.New(fault.Transient, "the old pod of validator %d isn't gone yet: a second one with its key must not start", v.Ordinal).
					Do("run again when it is gone")
			}
			fresh = append(fresh, v)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if len(c.Commits) == 0 {
		return fault.New(fault.Transient, "the chain has no commit yet that shows which keys sign").Do("run again when it has a few blocks")
	}
	witness := c.Observers()
	to := c.Commits[len(c.Commits)-1].Height
	commits, err := s.Adapter.Commits(ctx, census.Endpoint(s.Network, witness[0]), max(1, to-guardCommits+1), to)
	if err != nil {
		return err
	}
	for _, v := range fresh {
		for _, k := range commits {
			if k.Signed(v.Identity.Address) {
				return fault.New(fault.Refused, "the key %s of validator %d signed block %d, though validator %d doesn't run here: starting it would double-sign",
					v.Identity.Address, v.Ordinal, k.Height, v.Ordinal).
					Do("stop the other process that uses the key, wait %d blocks, and run again", guardCommits)
			}
		}
	}
	return nil
}
