package step

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/plan"
)

// batchPoll is how often facts are read while a batch waits: half of a usual
// block time.
const batchPoll = 500 * time.Millisecond

// Batches says how validators are moved into or out of consensus.
type Batches struct {
	Wanted int
	// Effective bounds the wait until a batch may go: the one before it must be
	// effective and proven.
	Effective time.Duration
	// Settle bounds the wait for a refusal to pass, and for a chain that stands
	// still to make a block.
	Settle time.Duration
	// Pick returns the validators that are left, and how many of them, in order,
	// may go at once. None may: refusal says why. Others must arrive first:
	// waitFor says who. err ends the step.
	Pick func(*census.Census) (left []census.Validator, may int, waitFor string, refusal, err error)
	// Send sends one validator's transaction, if it needs one.
	Send func(ctx context.Context, v census.Validator, k keys.Validator) (chain.Receipt, error)
	// Reason and Done are the event's reason and verb, such as Staked and staked.
	Reason, Done string
	// Note records a receipt in the roster.
	Note func(*v1alpha1.RosterEntry, chain.Receipt)
}

// Move moves validators batch by batch, until none is left, and returns how
// many were moved and how many transactions that took. No transaction is sent
// to a chain that makes no blocks. The last batch is sent, not proven.
func (s *Session) Move(ctx context.Context, b Batches) (moved, sent int, err error) {
	for {
		batch, err := s.nextBatch(ctx, b)
		if err != nil || len(batch) == 0 {
			return moved, sent, err
		}
		n, err := s.sendBatch(ctx, b, batch)
		sent += n
		if err != nil {
			return moved, sent, err
		}
		moved += len(batch)
	}
}

func (s *Session) nextBatch(ctx context.Context, b Batches) (batch []census.Validator, err error) {
	start := time.Now()
	var first int64
	err = s.Wait(ctx, "the next batch", b.Effective, batchPoll, func(ctx context.Context) (bool, string, error) {
		c, err := s.Taker.Take(ctx, census.Options{Wanted: b.Wanted})
		if err != nil {
			return false, "", err
		}
		left, may, waitFor, refusal, err := b.Pick(c)
		if err != nil || len(left) == 0 {
			batch = nil
			return err == nil, "", err
		}
		if first == 0 {
			first = c.Height
		}
		if c.Height == first {
			refusal = fault.New(fault.Refused, "the chain makes no blocks: it stands at height %d for %s; %s", c.Height, time.Since(start).Round(time.Second), c.Power).
				Do("bring back the pods that were taken away last; no transaction is sent to a chain that stands still")
		}
		switch {
		case waitFor != "":
			return false, waitFor, nil
		case refusal == nil:
			batch = left[:may]
			return true, "", nil
		case time.Since(start) > b.Settle:
			return false, "", refusal
		case c.Height == first:
			return false, fmt.Sprintf("a block after height %d", first), nil
		}
		return false, Line(refusal), nil
	})
	return batch, err
}

// Moving names the validators whose change isn't effective yet.
func Moving(c *census.Census) (names []string) {
	for _, v := range plan.Settling(c) {
		names = append(names, fmt.Sprintf("validator %d (%s) to move in the consensus set", v.Ordinal, v.Record.Status))
	}
	return names
}

// sendBatch sends a batch's transactions at once, each validator from its own
// account, and records what was done, also when some of them failed.
func (s *Session) sendBatch(ctx context.Context, b Batches, batch []census.Validator) (sent int, err error) {
	ordinals := make([]int, len(batch))
	for i, v := range batch {
		ordinals[i] = v.Ordinal
	}
	ks, err := s.Taker.Keys(ctx, ordinals)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	receipts, errs := make([]chain.Receipt, len(batch)), make([]error, len(batch))
	for i, v := range batch {
		wg.Go(func() { receipts[i], errs[i] = s.sendOne(ctx, b, v, ks[v.Ordinal]) })
	}
	wg.Wait()
	for i, v := range batch {
		r := receipts[i]
		if errs[i] != nil {
			errs[i] = fault.New(fault.CodeOf(errs[i]), "validator %d: %w", v.Ordinal, errs[i])
			continue
		}
		s.Log.Info("validator "+b.Done, "validator", v.Ordinal, "sent", r.Sent, "tx", r.Hash, "height", r.Height, "detail", r.Detail)
		if r.Sent {
			sent++
			s.Event(ctx, network.Normal, b.Reason, fmt.Sprintf("validator %d %s: transaction %s in block %d", v.Ordinal, b.Done, r.Hash, r.Height))
		}
	}
	_, err = s.Store.UpdateStatus(ctx, s.Held.Token(), func(n *v1alpha1.ValidatorNetwork) (changed bool) {
		for i, v := range batch {
			if errs[i] == nil {
				b.Note(network.Ensure(n, v.Ordinal), receipts[i])
				changed = true
			}
		}
		return changed
	})
	return sent, errors.Join(append(errs, err)...)
}

func (s *Session) sendOne(ctx context.Context, b Batches, v census.Validator, k keys.Validator) (chain.Receipt, error) {
	id, err := s.Adapter.Identity(k)
	if err != nil {
		return chain.Receipt{}, err
	}
	if !strings.EqualFold(id.Address, v.Identity.Address) || id.Operator != v.Identity.Operator {
		return chain.Receipt{}, fault.New(fault.Refused, "the keys in %s changed during the run: they were those of %s and are those of %s", k.Source, v.Identity.Address, id.Address).
			Do("start a new run")
	}
	return b.Send(ctx, v, k)
}
