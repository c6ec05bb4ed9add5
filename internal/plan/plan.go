// Package plan decides, from a census, who joins and who leaves, in which
// batches, and whether the network stays alive meanwhile. It is pure.
//
// It guarantees that every batch of a plan satisfies the quorum rules if the
// census is true and every earlier batch was proven. It doesn't guarantee that
// the facts stay as they are: the steps plan again before every batch.
package plan

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/quorum"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/workload"
)

// Change is what happens to one validator.
type Change struct {
	Ordinal int    `json:"ordinal"`
	Pod     string `json:"pod"`
	Address string `json:"address"`
	Power   int64  `json:"power"`
	State   string `json:"state"`
	// Transaction to be sent: stake, unjail, unstake, or none.
	Transaction string `json:"transaction"`
}

// Batch is a group of changes that may be in flight together.
type Batch struct {
	Ordinals []int        `json:"ordinals"`
	Before   quorum.Power `json:"before"`
	// During is the worst moment: newcomers are in the set but don't sign yet;
	// leavers still are and do, since their pods go only after the proof.
	During quorum.Power `json:"during"`
	After  quorum.Power `json:"after"`
}

// Plan is what an operation will do.
type Plan struct {
	Operation string   `json:"operation"`
	Wanted    int      `json:"wanted"`
	Replicas  int      `json:"replicas"`
	Height    int64    `json:"height"`
	Changes   []Change `json:"changes"`
	Batches   []Batch  `json:"batches"`
	// Removed are pods that will be deleted; their volumes and keys stay.
	Removed []string `json:"removed"`
	Added   []string `json:"added"`
	// Waiting is bounded by blocks of Interval.
	Interval string `json:"blockInterval"`
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool {
	return len(p.Changes) == 0 && len(p.Removed) == 0 && len(p.Added) == 0
}

// Joining returns the validators below wanted that aren't in consensus yet.
// Those that are bonded already and only wait for the set to change are left out.
func Joining(c *census.Census, wanted int) (out []census.Validator) {
	for _, v := range c.Validators {
		if v.Ordinal < wanted && v.Member == nil && v.Record.Status != chain.Bonded {
			out = append(out, v)
		}
	}
	return out
}

// Leaving returns the validators from wanted up that still have a stake or a
// place in the set.
func Leaving(c *census.Census, wanted int) (out []census.Validator) {
	for _, v := range c.Validators {
		if v.Ordinal >= wanted && staked(v) {
			out = append(out, v)
		}
	}
	return out
}

// staked reports whether a validator has something to withdraw.
func staked(v census.Validator) bool {
	switch v.Record.Status {
	case chain.Bonded, chain.Waiting, chain.Jailed, chain.Tombstoned:
		return true
	}
	return false
}

// Settling returns the validators whose place in the set is about to change:
// bonded but not in it yet, or unstaked but still in it. A new change waits
// until they have arrived.
func Settling(c *census.Census) (out []census.Validator) {
	for _, v := range c.Validators {
		switch {
		case v.Member == nil && v.Record.Status == chain.Bonded,
			v.Member != nil && (v.Record.Status == chain.Unstaked || v.Record.Status == chain.Unstaking || v.Record.Status == chain.Jailed):
			out = append(out, v)
		}
	}
	return out
}

// Remaining returns the powers of the set without the given validators.
func Remaining(c *census.Census, leaving []census.Validator) (powers []int64) {
	gone := map[string]bool{}
	for _, v := range leaving {
		gone[v.Identity.Address] = true
	}
	for _, m := range c.Set.Members {
		if !gone[m.Address] {
			powers = append(powers, m.Power)
		}
	}
	return powers
}

// Powers returns the validators' powers in the set.
func Powers(vs []census.Validator) (powers []int64) {
	for _, v := range vs {
		powers = append(powers, v.Power())
	}
	return powers
}

// Budget is the fault budget of the safety settings.
func Budget(s v1alpha1.SafetySpec) int {
	if s.FaultBudget == nil {
		return 1
	}
	return int(*s.FaultBudget)
}

// Direction checks that the operation moves towards wanted.
func Direction(op string, wanted, replicas int) error {
	switch {
	case op == "scale-up" && wanted < replicas:
		return fault.New(fault.Config, "scale-up to %d: %d validators run already", wanted, replicas).
			Do("use scale-down to lower the number")
	case op == "scale-down" && wanted > replicas:
		return fault.New(fault.Config, "scale-down to %d: only %d validators run", wanted, replicas).
			Do("use scale-up to raise the number")
	}
	return nil
}

// Make plans an operation. power is the voting power of one new stake.
func Make(n *v1alpha1.ValidatorNetwork, c *census.Census, op string, wanted int, power int64) (*Plan, error) {
	p := &Plan{Operation: op, Wanted: wanted, Replicas: c.Replicas(), Height: c.Height, Interval: c.Interval.String()}
	if err := Direction(op, wanted, p.Replicas); err != nil {
		return nil, err
	}
	pod := func(o int) string { return workload.PodName(n.Spec.Workload.StatefulSet, o) }
	for o := p.Replicas; o < wanted; o++ {
		p.Added = append(p.Added, pod(o))
	}
	for o := wanted; o < p.Replicas; o++ {
		p.Removed = append(p.Removed, pod(o))
	}
	change := func(v census.Validator, tx string, power int64) {
		p.Changes = append(p.Changes, Change{v.Ordinal, pod(v.Ordinal), v.Identity.Address, power, string(v.Record.Status), tx})
	}
	if op == "scale-up" {
		joining := Joining(c, wanted)
		var powers []int64
		for _, v := range joining {
			tx, err := Admit(n, v)
			if err != nil {
				return nil, err
			}
			change(v, tx, power)
			powers = append(powers, power)
		}
		return p, p.up(joining, powers, c)
	}
	leaving := Leaving(c, wanted)
	for _, v := range leaving {
		change(v, "unstake", v.Power())
	}
	return p, p.down(n, leaving, c)
}

// Admit says which transaction brings a validator in, or why none may.
func Admit(n *v1alpha1.ValidatorNetwork, v census.Validator) (string, error) {
	switch v.Record.Status {
	case chain.Tombstoned:
		return "", fault.New(fault.Refused, "validator %d is tombstoned: its key double-signed and can never be used again", v.Ordinal).
			Do("give it a new identity: new keys in its Secret and an empty volume")
	case chain.Jailed:
		if !n.Spec.Safety.Unjail {
			return "", fault.New(fault.Refused, "validator %d is jailed", v.Ordinal).
				Do("find out why, then unjail it by hand or set spec.safety.unjail: true")
		}
		return "unjail", nil
	case chain.Waiting:
		return "", fault.New(fault.Refused, "validator %d is staked but outside of the active set: the chain's maximum of validators is reached", v.Ordinal).
			Do("raise the chain's maximum or the stake")
	}
	return "stake", nil
}

func (p *Plan) up(joining []census.Validator, powers []int64, c *census.Census) error {
	now := c.Power
	for len(joining) > 0 {
		k := now.StakeBatch(powers)
		if k == 0 {
			return RefuseStake(now, powers[0], joining[0].Ordinal, c)
		}
		sum := total(powers[:k])
		after := quorum.Power{Total: now.Total + sum, Live: now.Live + sum}
		p.batch(joining[:k], now, quorum.Power{Total: now.Total + sum, Live: now.Live}, after)
		joining, powers, now = joining[k:], powers[k:], after
	}
	return nil
}

func (p *Plan) down(n *v1alpha1.ValidatorNetwork, leaving []census.Validator, c *census.Census) error {
	now, stay := c.Power, Remaining(c, leaving)
	if len(leaving) > 0 && len(stay) == 0 {
		return fault.New(fault.Refused, "scale-down to %d would take the last validator out of consensus: the chain would halt for good", p.Wanted)
	}
	for len(leaving) > 0 {
		powers := Powers(leaving)
		k := now.UnstakeBatch(powers, stay, Budget(n.Spec.Safety))
		if k == 0 {
			return RefuseUnstake(now, leaving[0], Budget(n.Spec.Safety), stay, c)
		}
		sum := total(powers[:k])
		after := quorum.Power{Total: now.Total - sum, Live: now.Live - sum}
		p.batch(leaving[:k], now, now, after)
		leaving, now = leaving[k:], after
	}
	return nil
}

func (p *Plan) batch(vs []census.Validator, before, during, after quorum.Power) {
	b := Batch{Before: before, During: during, After: after}
	for _, v := range vs {
		b.Ordinals = append(b.Ordinals, v.Ordinal)
	}
	p.Batches = append(p.Batches, b)
}

func total(powers []int64) (sum int64) {
	for _, p := range powers {
		sum += p
	}
	return sum
}

// RefuseStake explains with numbers why power may not join now.
func RefuseStake(p quorum.Power, power int64, ordinal int, c *census.Census) error {
	largest := max(0, (3*p.Live-1)/2-p.Total)
	return fault.New(fault.Refused,
		"staking validator %d (power %d) could halt the chain: its %d live power must be more than two thirds of %d, but 3*%d = %d is not above 2*%d = %d; silent: %s; the largest power that may join now is %d",
		ordinal, power, p.Live, p.Total+power, p.Live, 3*p.Live, p.Total+power, 2*(p.Total+power), silent(c), largest).
		Do("bring the silent validators back first, or stake less")
}

// RefuseUnstake explains with numbers why a validator may not leave now.
func RefuseUnstake(p quorum.Power, v census.Validator, budget int, stay []int64, c *census.Census) error {
	return fault.New(fault.Refused,
		"unstaking validator %d (power %d) could halt the chain: of %d power %d is live; without it and with %d of the %d remaining validators failing, more than two thirds of %d would not be left; silent: %s; the largest number that may leave now is 0",
		v.Ordinal, v.Power(), p.Total, p.Live, budget, len(stay), p.Total-v.Power(), silent(c)).
		Do("bring the silent validators back first, keep more validators, or lower spec.safety.faultBudget")
}

// silent names the members that didn't sign the last commits.
func silent(c *census.Census) string {
	var names []string
	for _, v := range c.Validators {
		if v.Member != nil && !c.Alive(v.Identity.Address) {
			names = append(names, fmt.Sprintf("validator %d", v.Ordinal))
		}
	}
	for _, m := range c.Others {
		if !c.Alive(m.Address) {
			names = append(names, m.Address)
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

// Write writes the plan as a table.
func (p *Plan) Write(w io.Writer) error {
	fmt.Fprintf(w, "Plan: %s from %d to %d validators, at height %d (a block every %s)\n", p.Operation, p.Replicas, p.Wanted, p.Height, p.Interval)
	if p.Empty() {
		_, err := fmt.Fprintln(w, "Nothing to do.")
		return err
	}
	if len(p.Added) > 0 {
		fmt.Fprintf(w, "Pods to start: %s\n", strings.Join(p.Added, ", "))
	}
	if len(p.Removed) > 0 {
		fmt.Fprintf(w, "Pods to stop, after they left consensus: %s (keys and volumes stay)\n", strings.Join(p.Removed, ", "))
	}
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	if len(p.Changes) > 0 {
		fmt.Fprintln(t, "VALIDATOR\tSTATE\tTRANSACTION\tPOWER\tADDRESS")
	}
	for _, c := range p.Changes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", c.Pod, c.State, c.Transaction, c.Power, c.Address)
	}
	if len(p.Batches) > 0 {
		fmt.Fprintln(t, "BATCH\tVALIDATORS\tMARGIN BEFORE\tDURING\tAFTER")
	}
	for i, b := range p.Batches {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", i+1, strings.Trim(fmt.Sprint(b.Ordinals), "[]"), margin(b.Before), margin(b.During), margin(b.After))
	}
	return t.Flush()
}

// margin shows the power that may still fail, of the total.
func margin(p quorum.Power) string { return fmt.Sprintf("%d of %d", p.Margin(), p.Total) }
