// Package scale is the step that sets the number of the StatefulSet's replicas.
//
// It guarantees that no pod is taken away whose key is still in the consensus
// set or staked, and that no pod is started whose key signed one of the last
// 20 commits: two processes with one key double-sign. The key of a validator that
// has left the set is waited for, one that is in the set is refused. The
// change carries the run's fencing token and is refused after a newer run's.
// It doesn't wait for the pods: wait-ready does.
package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
type Config struct {
	step.Common
	SilenceTimeout time.Duration `split_words:"true" default:"2m" desc:"how long to wait for the old pod and the last signatures of a validator that has just left"`
}

// Step is scale.
var Step = step.Define("scale", "set the number of validator pods, when that is safe",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing is scaled"}, nil
	}
	return d.Work(ctx, false, func(ctx context.Context, s *step.Session) (step.Result, error) { return work(ctx, s, c) })
}

func work(ctx context.Context, s *step.Session, cfg Config) (step.Result, error) {
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
	if c, err = untilMayStart(ctx, s, c, wanted, cfg.SilenceTimeout); err != nil {
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

// untilMayStart waits until the new pods may start and returns the census that
// shows it. A validator that has just left needs 20 blocks for that.
func untilMayStart(ctx context.Context, s *step.Session, c *census.Census, wanted int, limit time.Duration) (*census.Census, error) {
	err := s.Wait(ctx, "new pods may start", limit, time.Second, func(ctx context.Context) (_ bool, waiting string, err error) {
		if c == nil {
			if c, err = s.Taker.Take(ctx, census.Options{Wanted: wanted}); err != nil {
				return false, "", err
			}
		}
		if waiting, err = mayStart(ctx, s, c, wanted); waiting == "" && err == nil {
			return true, "", nil
		}
		c = nil // look again
		return false, waiting, err
	})
	return c, err
}

// mayStart refuses to start a second process for a key that signs elsewhere, and
// says what a validator that has left must wait for; empty when nothing.
func mayStart(ctx context.Context, s *step.Session, c *census.Census, wanted int) (waiting string, err error) {
	var fresh []census.Validator
	for _, v := range c.Validators {
		if v.Ordinal >= c.Replicas() && v.Ordinal < wanted {
			if v.Pod != nil {
				return fmt.Sprintf("the old pod of validator %d to be gone: a second one with its key must not start", v.Ordinal), nil
			}
			fresh = append(fresh, v)
		}
	}
	if len(fresh) == 0 {
		return "", nil
	}
	if len(c.Commits) == 0 {
		return "", fault.New(fault.Transient, "the chain has no commit yet that shows which keys sign").Do("run again when it has a few blocks")
	}
	witness := c.Observers()
	to := c.Commits[len(c.Commits)-1].Height
	commits, err := s.Adapter.Commits(ctx, census.Endpoint(s.Network, witness[0]), max(1, to-guardCommits+1), to)
	if err != nil {
		return "", err
	}
	for _, v := range fresh {
		for _, k := range slices.Backward(commits) {
			if !k.Signed(v.Identity.Address) {
				continue
			}
			if v.Member == nil { // it signed while it was in the set, and can't any more
				return fmt.Sprintf("the key of validator %d to be silent for %d blocks: it signed block %d of %d", v.Ordinal, guardCommits, k.Height, to), nil
			}
			return "", fault.New(fault.Refused, "the key %s of validator %d signed block %d, though validator %d doesn't run here: starting it would double-sign",
				v.Identity.Address, v.Ordinal, k.Height, v.Ordinal).
				Do("stop the other process that uses the key, wait %d blocks, and run again", guardCommits)
		}
	}
	return "", nil
}
