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
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/network"
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
	ctx, s, done, err := d.Hold(ctx)
	if err != nil {
		return step.Result{}, err
	}
	res, err := work(ctx, s, c)
	return res, done(err)
}

func work(ctx context.Context, s *step.Session, c Config) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	var sent, left int
	for {
		batch, err := next(ctx, s, c, wanted)
		if err != nil {
			return step.Result{}, err
		}
		if len(batch) == 0 {
			break
		}
		n, err := unstakeAll(ctx, s, batch)
		sent += n
		if err != nil {
			return step.Result{}, err
		}
		left += len(batch)
	}
	msg := fmt.Sprintf("%d validators unstaked with %d transactions", left, sent)
	if left == 0 {
		msg = "no validator to leave has a stake; no transaction sent"
	}
	return step.Result{Message: msg, Outputs: map[string]string{"transactions": strconv.Itoa(sent)}}, nil
}

// next waits until all earlier changes are effective and returns the next
// batch; it is empty when nobody is left.
func next(ctx context.Context, s *step.Session, c Config, wanted int) (batch []census.Validator, err error) {
	deadline := time.Now().Add(c.SettleTimeout)
	err = s.Wait(ctx, "the next batch may leave", c.LeaveTimeout, 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		found, err := s.Taker.Take(ctx, census.Options{Wanted: wanted})
		if err != nil {
			return false, "", err
		}
		leaving := plan.Leaving(found, wanted)
		if len(leaving) == 0 {
			batch = nil
			return true, "", nil
		}
		var names []string
		for _, v := range plan.Settling(found) {
			names = append(names, fmt.Sprintf("validator %d (%s) to move in the consensus set", v.Ordinal, v.Record.Status))
		}
		if len(names) > 0 {
			return false, strings.Join(names, "; "), nil
		}
		stay, budget := plan.Remaining(found, leaving), plan.Budget(s.Network.Spec.Safety)
		if len(stay) == 0 {
			return false, "", fault.New(fault.Refused, "the last validator may not leave consensus: the chain would halt for good")
		}
		k := found.Power.UnstakeBatch(plan.Powers(leaving), stay, budget)
		if k == 0 {
			refusal := plan.RefuseUnstake(found.Power, leaving[0], budget, stay, found)
			if time.Now().After(deadline) {
				return false, "", refusal
			}
			return false, step.Line(refusal), nil
		}
		batch = leaving[:k]
		return true, "", nil
	})
	return batch, err
}

func unstakeAll(ctx context.Context, s *step.Session, batch []census.Validator) (sent int, err error) {
	var ordinals []int
	for _, v := range batch {
		ordinals = append(ordinals, v.Ordinal)
	}
	ks, err := s.Taker.Keys(ctx, ordinals)
	if err != nil {
		return 0, err
	}
	var (
		mu       sync.Mutex
		wg       sync.WaitGroup
		errs     []error
		receipts = map[int]chain.Receipt{}
	)
	for _, v := range batch {
		wg.Go(func() {
			rec, err := s.Adapter.Unstake(ctx, chain.UnstakeRequest{Keys: ks[v.Ordinal], Origin: s.Origin(v.Ordinal)})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fault.New(fault.CodeOf(err), "unstake validator %d: %w", v.Ordinal, err))
				return
			}
			receipts[v.Ordinal] = rec
			s.Log.Info("validator unstaked", "validator", v.Ordinal, "sent", rec.Sent, "tx", rec.Hash, "height", rec.Height, "detail", rec.Detail)
			if rec.Sent {
				sent++
			}
		})
	}
	wg.Wait()
	for _, v := range batch {
		if rec, ok := receipts[v.Ordinal]; ok && rec.Sent {
			s.Event(ctx, network.Normal, "Unstaked", fmt.Sprintf("validator %d unstaked: transaction %s in block %d", v.Ordinal, rec.Hash, rec.Height))
		}
	}
	if len(receipts) > 0 {
		_, err := s.Store.UpdateStatus(ctx, s.Held.Token(), func(n *v1alpha1.ValidatorNetwork) bool {
			for o, r := range receipts {
				e := network.Ensure(n, o)
				e.State = v1alpha1.BondState(chain.Unstaking)
				if r.Sent {
					e.Tx, e.LeftHeight = r.Hash, r.Effective
				}
			}
			return true
		})
		errs = append(errs, err)
	}
	return sent, errors.Join(errs...)
}
