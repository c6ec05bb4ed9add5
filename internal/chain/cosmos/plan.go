package cosmos

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/decred/dcrd/bech32"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// plan is what an effect decided to do, after it read the state.
type plan struct {
	action string // names the messages; empty when there is nothing to do
	detail string
	msgs   []message
	spends *big.Int // what the messages take from the account, without the fee
}

func already(format string, args ...any) plan {
	return plan{detail: fmt.Sprintf(format, args...), spends: new(big.Int)}
}

// planStake decides how a validator gets its stake.
func (a *Adapter) planStake(ctx context.Context, e chain.Endpoint, op operator, moniker string, amount *big.Int) (plan, error) {
	f, err := a.read(ctx, e, op.identity())
	if err != nil {
		return plan{}, err
	}
	if err := a.sameDenom(f.params); err != nil {
		return plan{}, err
	}
	switch {
	case f.signing.tombstoned:
		return plan{}, tombstoned(op)
	case f.foreign(op.identity()):
		return plan{}, foreign(op)
	case f.record == nil:
		return a.planCreate(ctx, e, f, op, moniker, amount)
	case f.record.jailed && !f.left():
		return plan{}, fault.New(fault.Refused, "validator %s is jailed, not unstaked: it was put out for misbehaviour or downtime and has %s%s staked", op.valoper, f.own, a.denom).
			Do("find out why, then unjail it")
	case !f.record.jailed && a.power(f.record.tokens) > 0:
		return already("validator %s has %s%s staked already", op.valoper, f.record.tokens, a.denom), nil
	}

	total := new(big.Int).Add(f.own, amount)
	if total.Cmp(f.record.minSelf) < 0 {
		return plan{}, fault.New(fault.Config, "%s%s is less than the validator's minimum self delegation of %s%s", amount, a.denom, f.record.minSelf, a.denom)
	}
	if err := a.afford(ctx, e, f, op, amount); err != nil {
		return plan{}, err
	}
	if err := a.place(ctx, e, f, op, new(big.Int).Add(f.record.tokens, amount)); err != nil {
		return plan{}, err
	}
	p := plan{
		action: "MsgDelegate", msgs: []message{a.msgDelegate(op, amount)}, spends: amount,
		detail: fmt.Sprintf("staked %s%s again for validator %s", amount, a.denom, op.valoper),
	}
	if f.record.jailed {
		// Undelegating everything put it out; nothing but this puts it back.
		if err := a.awaitRelease(ctx, f, op); err != nil {
			return plan{}, err
		}
		p.action, p.msgs = "MsgDelegate+MsgUnjail", append(p.msgs, msgUnjail(op))
	}
	return p, nil
}

func (a *Adapter) planCreate(ctx context.Context, e chain.Endpoint, f facts, op operator, moniker string, amount *big.Int) (plan, error) {
	switch {
	case amount.Cmp(a.minSelf) < 0:
		return plan{}, fault.New(fault.Config, "stake of %s%s is less than the chain option minSelfDelegation %s", amount, a.denom, a.minSelf)
	case moniker == "" || len(moniker) > 70:
		return plan{}, fault.New(fault.Config, "moniker %q must have 1 to 70 characters", moniker)
	case a.commission.rate.Cmp(f.params.minCommission) < 0:
		return plan{}, fault.New(fault.Config, "the chain option commissionRate %s is below the chain's minimum %s",
			a.commission.rate.FloatString(2), f.params.minCommission.FloatString(2))
	}
	if err := a.afford(ctx, e, f, op, amount); err != nil {
		return plan{}, err
	}
	if err := a.place(ctx, e, f, op, amount); err != nil {
		return plan{}, err
	}
	return plan{
		action: "MsgCreateValidator", msgs: []message{a.msgCreateValidator(op, moniker, amount)}, spends: amount,
		detail: fmt.Sprintf("created validator %s with %s%s", op.valoper, amount, a.denom),
	}, nil
}

func tombstoned(op operator) error {
	return fault.New(fault.Refused, "consensus key %s is tombstoned: it signed two blocks of one height, and the chain never takes it back", op.address).
		Do("give the validator a new consensus key and a new operator key")
}

func foreign(op operator) error {
	return fault.New(fault.Refused, "operator %s runs a validator with another consensus key than %s", op.valoper, op.address).
		Do("check that the Secret holds the keys that belong together")
}

func (a *Adapter) sameDenom(p params) error {
	if p.denom != a.denom {
		return fault.New(fault.Config, "chain %s stakes %q, but the chain option denom is %q", a.chainID, p.denom, a.denom)
	}
	return nil
}

// afford checks the account's funds, without a fee.
func (a *Adapter) afford(ctx context.Context, e chain.Endpoint, f facts, op operator, amount *big.Int) error {
	has, err := a.balance(ctx, e, op.account, a.denom, f.height)
	if err != nil {
		return err
	}
	return a.enough(op, has, amount, new(big.Int))
}

func (a *Adapter) enough(op operator, has, amount, fee *big.Int) error {
	if total := new(big.Int).Add(amount, fee); has.Cmp(total) < 0 {
		return fault.New(fault.Chain, "insufficient funds: account %s has %s%s, but the stake is %s%s and the fee %s%s",
			op.account, has, a.denom, amount, a.denom, fee, a.denom).
			Do("send it at least %s%s", new(big.Int).Sub(total, has), a.denom)
	}
	return nil
}

// place checks that a validator with so many tokens finds a free place in the
// set, and that nobody else uses its consensus key.
//
// The chain fills max_validators places in the order of power, and of equal
// powers the smaller operator address goes first (the key of x/staking's power
// index).
func (a *Adapter) place(ctx context.Context, e chain.Endpoint, f facts, op operator, tokens *big.Int) error {
	power := a.power(tokens)
	if power == 0 {
		return fault.New(fault.Config, "%s%s stands for no voting power: one unit is %s%s", tokens, a.denom, a.powerReduction, a.denom)
	}
	all, err := a.validators(ctx, e, f.height)
	if err != nil {
		return err
	}
	var last *validator
	members := 0
	for i, v := range all {
		if v.operator == op.valoper {
			continue
		}
		if bytes.Equal(v.pubKey, op.consensus) {
			return fault.New(fault.Refused, "consensus key %s is used by another validator, %s (%s)", op.address, v.operator, v.moniker).
				Do("never run one consensus key twice: give this validator its own")
		}
		if v.status != bondBonded || v.jailed {
			continue
		}
		members++
		if last == nil || a.before(last.operator, a.power(last.tokens), v.operator, a.power(v.tokens)) {
			last = &all[i]
		}
	}
	if members < f.params.maxValidators {
		return nil
	}
	lowest := a.power(last.tokens)
	if a.before(op.valoper, power, last.operator, lowest) {
		return fault.New(fault.Refused, "the set is full (max_validators %d): power %d would push out validator %s (%s) with power %d",
			f.params.maxValidators, power, last.operator, last.moniker, lowest).
			Do("unstake a validator first, or have max_validators raised")
	}
	return fault.New(fault.Refused, "the set is full (max_validators %d): a validator with power %d would wait outside, the lowest inside is %s (%s) with power %d",
		f.params.maxValidators, power, last.operator, last.moniker, lowest).
		Do("unstake a validator first, or have max_validators raised")
}

// before reports whether the chain gives x a place before y.
func (a *Adapter) before(x string, powerX int64, y string, powerY int64) bool {
	if powerX != powerY {
		return powerX > powerY
	}
	_, rawX, errX := bech32.DecodeToBase256(x)
	_, rawY, errY := bech32.DecodeToBase256(y)
	if errX != nil || errY != nil {
		return x < y
	}
	return bytes.Compare(rawX, rawY) < 0
}

// planUnstake decides how a validator's own stake is withdrawn.
func (a *Adapter) planUnstake(ctx context.Context, e chain.Endpoint, op operator) (plan, error) {
	f, err := a.read(ctx, e, op.identity())
	if err != nil {
		return plan{}, err
	}
	switch {
	case f.record == nil:
		return already("validator %s has no stake", op.valoper), nil
	case f.own.Sign() == 0:
		return already("validator %s has no stake of its own left", op.valoper), nil
	case f.foreign(op.identity()):
		return plan{}, foreign(op)
	case f.params.maxEntries > 0 && len(f.unbonding) >= f.params.maxEntries:
		return plan{}, fault.New(fault.Chain, "validator %s has %d withdrawals under way, and the chain allows no more", op.valoper, len(f.unbonding)).
			Do("wait until %s, when the first one ends", f.unbonding[0].Format(time.RFC3339))
	}
	if err := a.sameDenom(f.params); err != nil {
		return plan{}, err
	}
	if f.record.status == bondBonded && !f.record.jailed {
		all, err := a.validators(ctx, e, f.height)
		if err != nil {
			return plan{}, err
		}
		others := 0
		for _, v := range all {
			if v.operator != op.valoper && v.status == bondBonded && !v.jailed {
				others++
			}
		}
		if others == 0 {
			return plan{}, fault.New(fault.Refused, "%s is the last validator in the set: without it chain %s stops for good", op.valoper, a.chainID)
		}
	}
	return plan{
		action: "MsgUndelegate", msgs: []message{a.msgUndelegate(op, f.own)}, spends: new(big.Int),
		detail: fmt.Sprintf("withdrew %s%s from validator %s, free after %s", f.own, a.denom, op.valoper, f.params.unbondingTime),
	}, nil
}

// planUnjail decides how a jailed validator comes back.
func (a *Adapter) planUnjail(ctx context.Context, e chain.Endpoint, op operator) (plan, error) {
	f, err := a.read(ctx, e, op.identity())
	if err != nil {
		return plan{}, err
	}
	switch {
	case f.signing.tombstoned:
		return plan{}, tombstoned(op)
	case f.record == nil || f.left():
		return plan{}, fault.New(fault.Refused, "validator %s isn't jailed but has no stake", op.valoper).Do("stake it")
	case f.foreign(op.identity()):
		return plan{}, foreign(op)
	case !f.record.jailed:
		return already("validator %s isn't jailed", op.valoper), nil
	case f.own.Cmp(f.record.minSelf) < 0:
		return plan{}, fault.New(fault.Refused, "validator %s has %s%s of its own staked, less than its minimum self delegation of %s%s", op.valoper, f.own, a.denom, f.record.minSelf, a.denom).
			Do("delegate the difference to it first")
	}
	if err := a.place(ctx, e, f, op, f.record.tokens); err != nil {
		return plan{}, err
	}
	if err := a.awaitRelease(ctx, f, op); err != nil {
		return plan{}, err
	}
	return plan{
		action: "MsgUnjail", msgs: []message{msgUnjail(op)}, spends: new(big.Int),
		detail: fmt.Sprintf("unjailed validator %s", op.valoper),
	}, nil
}

// awaitRelease waits until a validator may leave jail, by the chain's clock. A
// long wait is left to the caller.
func (a *Adapter) awaitRelease(ctx context.Context, f facts, op operator) error {
	until := f.signing.jailedUntil
	left := until.Sub(f.now)
	if left <= 0 {
		return nil
	}
	deadline, ok := ctx.Deadline()
	if left > a.pace.jail || ok && time.Until(deadline) < left {
		return fault.New(fault.Chain, "validator %s is jailed until %s, for another %s", op.valoper, until.Format(time.RFC3339), left.Round(time.Second)).
			Do("run again after that")
	}
	const noLimit = 1 << 40
	return a.awaitBlock(ctx, noLimit, func(ctx context.Context, e chain.Endpoint) (bool, error) {
		n, err := a.rpc.Status(ctx, e)
		return n.BlockTime.After(until), err
	})
}
