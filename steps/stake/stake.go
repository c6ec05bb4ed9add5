// Package stake is the step that makes running full nodes validators.
//
// It guarantees that only validators of this deployment below the wanted number
// are staked, only when their node has caught up, only in batches that the live
// power can carry alone, each batch proven to sign before the next; that a
// validator with a stake gets no second transaction; and that a validator that
// fails doesn't keep the others of its batch from being finished and recorded.
// It doesn't prove the last batch: verify-consensus does.
package stake

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/keys"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct {
	step.Common
	JoinTimeout   time.Duration `split_words:"true" default:"2m" desc:"how long a staked batch may take to be proven in consensus before the next"`
	SettleTimeout time.Duration `split_words:"true" default:"30s" desc:"how long to wait for enough live power before a stake is refused"`
}

// Step is stake.
var Step = step.Define("stake", "make running full nodes validators",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing is staked"}, nil
	}
	return d.Work(ctx, false, func(ctx context.Context, s *step.Session) (step.Result, error) { return work(ctx, s, c) })
}

func work(ctx context.Context, s *step.Session, c Config) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	power, err := s.Adapter.Power(s.Network.Spec.Stake.Amount)
	if err != nil {
		return step.Result{}, err
	}
	staked, sent, err := s.Move(ctx, step.Batches{
		Wanted: wanted, Effective: c.JoinTimeout, Settle: c.SettleTimeout,
		Pick: func(found *census.Census) ([]census.Validator, int, string, error, error) {
			return pick(s.Network, found, wanted, power)
		},
		Send: func(ctx context.Context, v census.Validator, k keys.Validator) (chain.Receipt, error) {
			return send(ctx, s, v, k)
		},
		Reason: "Staked", Done: "staked", Note: note,
	})
	if err != nil {
		return step.Result{}, err
	}
	msg := fmt.Sprintf("%d validators staked with %d transactions", staked, sent)
	if staked == 0 {
		msg = "every validator has its stake already; no transaction sent"
	}
	return step.Result{Message: msg, Outputs: map[string]string{"transactions": strconv.Itoa(sent)}}, nil
}

// pick returns who is to be staked, and how many of them may be at once.
func pick(n *v1alpha1.ValidatorNetwork, c *census.Census, wanted int, power int64) (joining []census.Validator, may int, waitFor string, refusal, err error) {
	joining = plan.Joining(c, wanted)
	if len(joining) == 0 {
		return nil, 0, "", nil, nil
	}
	powers := make([]int64, len(joining))
	waits := unproven(c)
	for i := range joining {
		powers[i] = power
		if _, err := plan.Admit(n, joining[i]); err != nil {
			return joining, 0, "", nil, err
		}
		if ok, why := c.Synced(&joining[i]); !ok {
			waits = append(waits, fmt.Sprintf("validator %d to catch up: it %s", joining[i].Ordinal, why))
		}
	}
	if may = c.Power.StakeBatch(powers); may == 0 {
		refusal = plan.RefuseStake(c.Power, power, joining[0].Ordinal, c)
	}
	return joining, may, strings.Join(waits, "; "), refusal, nil
}

// unproven names validators whose change isn't effective, or that joined and
// haven't shown yet that they sign.
func unproven(c *census.Census) []string {
	names := step.Moving(c)
	for _, v := range c.Validators {
		if v.Member != nil && v.Pod != nil && c.Joined(v.Identity.Address) && !c.Alive(v.Identity.Address) {
			names = append(names, fmt.Sprintf("validator %d to sign", v.Ordinal))
		}
	}
	return names
}

// send stakes or unjails one validator.
func send(ctx context.Context, s *step.Session, v census.Validator, k keys.Validator) (chain.Receipt, error) {
	if v.Record.Status == chain.Jailed {
		return s.Adapter.Unjail(ctx, chain.UnstakeRequest{Keys: k, Origin: s.Origin(v.Ordinal)})
	}
	r := chain.StakeRequest{
		Keys: k, Moniker: s.Taker.Workload.Pod(v.Ordinal), Amount: s.Network.Spec.Stake.Amount, Origin: s.Origin(v.Ordinal),
	}
	if err := s.Adapter.Preflight(ctx, r); err != nil {
		return chain.Receipt{}, err
	}
	return s.Adapter.Stake(ctx, r)
}

func note(e *v1alpha1.RosterEntry, r chain.Receipt) {
	e.State = v1alpha1.BondState(chain.Bonded)
	if r.Sent {
		e.Tx, e.JoinedHeight, e.LeftHeight, e.Signing = r.Hash, r.Effective, 0, false
	}
}
