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
	"github.com/rollcall-dev/rollcall/internal/workload"
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
	power, err := s.Adapter.Power(s.Network.Spec.Stake.Amount)
	if err != nil {
		return step.Result{}, err
	}
	var sent, staked int
	for {
		batch, err := next(ctx, s, c, wanted, power)
		if err != nil {
			return step.Result{}, err
		}
		if len(batch) == 0 {
			break
		}
		n, err := stakeAll(ctx, s, batch)
		sent += n
		if err != nil {
			return step.Result{}, err
		}
		staked += len(batch)
	}
	msg := fmt.Sprintf("%d validators staked with %d transactions", staked, sent)
	if staked == 0 {
		msg = "every validator has its stake already; no transaction sent"
	}
	return step.Result{Message: msg, Outputs: map[string]string{"transactions": strconv.Itoa(sent)}}, nil
}

// next waits until all earlier changes are effective and proven and returns the
// next batch; it is empty when nobody is left.
func next(ctx context.Context, s *step.Session, c Config, wanted int, power int64) (batch []census.Validator, err error) {
	var refusal error
	limit, deadline := c.JoinTimeout, time.Now().Add(c.SettleTimeout)
	err = s.Wait(ctx, "the next batch may join", limit, 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		found, err := s.Taker.Take(ctx, census.Options{Wanted: wanted})
		if err != nil {
			return false, "", err
		}
		joining := plan.Joining(found, wanted)
		if len(joining) == 0 {
			batch = nil
			return true, "", nil
		}
		if names := unsettled(found); names != "" {
			return false, names, nil
		}
		for i := range joining {
			if ok, why := found.Synced(&joining[i]); !ok {
				return false, fmt.Sprintf("validator %d to catch up: it %s", joining[i].Ordinal, why), nil
			}
			if _, err := plan.Admit(s.Network, joining[i]); err != nil {
				return false, "", err
			}
		}
		powers := make([]int64, len(joining))
		for i := range powers {
			powers[i] = power
		}
		k := found.Power.StakeBatch(powers)
		if k == 0 {
			refusal = plan.RefuseStake(found.Power, power, joining[0].Ordinal, found)
			if time.Now().After(deadline) {
				return false, "", refusal
			}
			return false, step.Line(refusal), nil
		}
		batch = joining[:k]
		return true, "", nil
	})
	return batch, err
}

// unsettled names validators whose change isn't effective or not proven yet.
func unsettled(c *census.Census) string {
	var names []string
	for _, v := range plan.Settling(c) {
		names = append(names, fmt.Sprintf("validator %d (%s) to move in the consensus set", v.Ordinal, v.Record.Status))
	}
	for _, v := range c.Validators {
		if v.Member != nil && v.Pod != nil && c.Joined(v.Identity.Address) && !c.Alive(v.Identity.Address) {
			names = append(names, fmt.Sprintf("validator %d to sign", v.Ordinal))
		}
	}
	return strings.Join(names, "; ")
}

// stakeAll stakes a batch, each validator from its own account, and records
// what was done. It returns how many transactions were sent.
func stakeAll(ctx context.Context, s *step.Session, batch []census.Validator) (sent int, err error) {
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
			r := chain.StakeRequest{
				Keys:    ks[v.Ordinal],
				Moniker: workload.PodName(s.Network.Spec.Workload.StatefulSet, v.Ordinal),
				Amount:  s.Network.Spec.Stake.Amount,
				Origin:  s.Origin(v.Ordinal),
			}
			rec, err := one(ctx, s, v, r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fault.New(fault.CodeOf(err), "stake validator %d: %w", v.Ordinal, err))
				return
			}
			receipts[v.Ordinal] = rec
			s.Log.Info("validator staked", "validator", v.Ordinal, "sent", rec.Sent, "tx", rec.Hash, "height", rec.Height, "detail", rec.Detail)
			if rec.Sent {
				sent++
			}
		})
	}
	wg.Wait()
	for _, v := range batch {
		if rec, ok := receipts[v.Ordinal]; ok && rec.Sent {
			s.Event(ctx, network.Normal, "Staked", fmt.Sprintf("validator %d staked: transaction %s in block %d", v.Ordinal, rec.Hash, rec.Height))
		}
	}
	if len(receipts) > 0 {
		_, err := s.Store.UpdateStatus(ctx, s.Held.Token(), func(n *v1alpha1.ValidatorNetwork) bool { return note(n, receipts) })
		errs = append(errs, err)
	}
	return sent, errors.Join(errs...)
}

func one(ctx context.Context, s *step.Session, v census.Validator, r chain.StakeRequest) (chain.Receipt, error) {
	id, err := s.Adapter.Identity(r.Keys)
	if err != nil {
		return chain.Receipt{}, err
	}
	if id.Address != v.Identity.Address {
		return chain.Receipt{}, fault.New(fault.Refused, "the key in %s changed during the run: it was %s and is %s", r.Keys.Source, v.Identity.Address, id.Address).
			Do("start a new run")
	}
	if v.Record.Status == chain.Jailed {
		return s.Adapter.Unjail(ctx, chain.UnstakeRequest{Keys: r.Keys, Origin: r.Origin})
	}
	if err := s.Adapter.Preflight(ctx, r); err != nil {
		return chain.Receipt{}, err
	}
	return s.Adapter.Stake(ctx, r)
}

func note(n *v1alpha1.ValidatorNetwork, receipts map[int]chain.Receipt) (changed bool) {
	for o, r := range receipts {
		e := network.Ensure(n, o)
		e.State = v1alpha1.BondState(chain.Bonded)
		if r.Sent {
			e.Tx, e.JoinedHeight, e.LeftHeight, e.Signing = r.Hash, r.Effective, 0, false
		}
		changed = true
	}
	return changed
}
