// Package unstake is the step that takes validators out of consensus while
// their pods still run.
//
// It guarantees that only validators of this deployment from the wanted number
// up are unstaked, in batches after which the rest still has a quorum with a
// fault to spare; that each batch has left the consensus set before the next;
// and that a validator without a stake gets no transaction. It doesn't stop
// pods, and it doesn't prove the last batch: verify-consensus does.
package unstake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct {
	step.Common
	LeaveTimeout  time.Duration `split_words:"true" default:"2m" desc:"how long an unstaked batch may take to leave the consensus set"`
	SettleTimeout time.Duration `split_words:"true" default:"30s" desc:"how long to wait for enough live power before an unstake is refused"`
}

// Step is unstake.
var Step = step.Define("unstake", "take validators out of consensus while their pods still run",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing is unstaked"}, nil
	}
	return d.Work(ctx, false, func(ctx context.Context, s *step.Session) (step.Result, error) { return work(ctx, s, c) })
}

func work(ctx context.Context, s *step.Session, c Config) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	left, sent, err := s.Move(ctx, step.Batches{
		Wanted: wanted, Effective: c.LeaveTimeout, Settle: c.SettleTimeout,
		Pick: func(found *census.Census) ([]census.Validator, int, string, error, error) {
			return pick(s.Network, found, wanted)
		},
		Send: func(ctx context.Context, v census.Validator, k keys.Validator) (chain.Receipt, error) {
			return s.Adapter.Unstake(ctx, chain.UnstakeRequest{Keys: k, Origin: s.Origin(v.Ordinal)})
		},
		Reason: "Unstaked", Done: "unstaked", Note: note,
	})
	if err != nil {
		return step.Result{}, err
	}
	msg := fmt.Sprintf("%d validators unstaked with %d transactions", left, sent)
	if left == 0 {
		msg = "no validator to leave has a stake; no transaction sent"
	}
	return step.Result{Message: msg, Outputs: map[string]string{"transactions": strconv.Itoa(sent)}}, nil
}

// pick returns who is to be unstaked, and how many of them may be at once.
func pick(n *v1alpha1.ValidatorNetwork, c *census.Census, wanted int) (leaving []census.Validator, may int, waitFor string, refusal, err error) {
	leaving = plan.Leaving(c, wanted)
	if len(leaving) == 0 {
		return nil, 0, "", nil, nil
	}
	stay, budget := plan.Remaining(c, leaving), plan.Budget(n.Spec.Safety)
	if len(stay) == 0 {
		return leaving, 0, "", nil, fault.New(fault.Refused, "the last validator may not leave consensus: the chain would halt for good")
	}
	if may = c.Power.UnstakeBatch(plan.Powers(leaving), stay, budget); may == 0 {
		refusal = plan.RefuseUnstake(c.Power, leaving[0], budget, stay, c)
	}
	return leaving, may, strings.Join(step.Moving(c), "; "), refusal, nil
}

func note(e *v1alpha1.RosterEntry, r chain.Receipt) {
	e.State = v1alpha1.BondState(chain.Unstaking)
	if r.Sent {
		e.Tx, e.LeftHeight = r.Hash, r.Effective
	}
}
