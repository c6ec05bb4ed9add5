// Package loadkeys is the step that makes sure, before anything changes, that
// every validator's keys are there and sound.
//
// It guarantees that the Secrets of all validators concerned hold a consensus
// key and an operator key that parse, that no two validators share a consensus
// key, and that the public identities are in the network's roster, so that
// later steps that only look need no right to Secrets. Key material never
// leaves this process: validators mount their own Secret, and stake and unstake
// read it again.
package loadkeys

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/internal/workload"
)

// Config of the step.
type Config struct{ step.Common }

// Step is load-keys.
var Step = step.Define("load-keys", "check that every validator's keys are there and sound",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	return d.Work(ctx, c.DryRun, work)
}

func work(ctx context.Context, s *step.Session) (step.Result, error) {
	ids, err := load(ctx, s)
	if err == nil && s.Held != nil {
		_, err = s.Store.UpdateStatus(ctx, s.Held.Token(), func(n *v1alpha1.ValidatorNetwork) bool { return network.Enroll(n, ids) })
	}
	return result(ids), err
}

func result(ids map[int]chain.Identity) step.Result {
	return step.Result{
		Message: fmt.Sprintf("keys of %d validators are sound", len(ids)),
		Outputs: map[string]string{"validators": strconv.Itoa(len(ids))},
	}
}

// load reads the keys of every validator that runs, is wanted or is in the
// roster with a stake.
func load(ctx context.Context, s *step.Session) (map[int]chain.Identity, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return nil, err
	}
	set, err := s.Taker.Workload.Get(ctx)
	if err != nil {
		return nil, err
	}
	ordinals := map[int]bool{}
	for o := range max(wanted, workload.Replicas(set)) {
		ordinals[o] = true
	}
	for _, r := range s.Network.Status.Roster {
		if r.State != v1alpha1.BondState(chain.Unstaked) {
			ordinals[int(r.Ordinal)] = true
		}
	}
	ks, err := s.Taker.Keys(ctx, slices.Sorted(maps.Keys(ordinals)))
	if err != nil {
		return nil, err
	}
	ids, owner := map[int]chain.Identity{}, map[string]int{}
	for _, o := range slices.Sorted(maps.Keys(ks)) {
		id, err := s.Adapter.Identity(ks[o])
		if err != nil {
			return nil, err
		}
		if other, ok := owner[id.Address]; ok {
			return nil, fault.New(fault.Refused, "validators %d and %d have the same consensus key %s: two processes with one key double-sign and are slashed", other, o, id.Address).
				Do("give one of them its own key")
		}
		if e := network.Entry(s.Network, o); e != nil && e.Address != "" && e.Address != id.Address && e.State == v1alpha1.BondState(chain.Bonded) {
			return nil, fault.New(fault.Refused, "the Secret of validator %d holds another consensus key than the one that is bonded: %s instead of %s", o, id.Address, e.Address).
				Do("put the bonded key back, or unstake it first; a forgotten key stays in the set for ever")
		}
		owner[id.Address], ids[o] = o, id
	}
	return ids, nil
}
