package cosmos

import (
	"context"
	"errors"
	"math/big"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

const (
	// maxSequences is how often a sequence number that somebody else took is
	// replaced by the next.
	maxSequences = 5
	// maxRefusals is how often the state is read again after a refusal that a
	// change of the state may explain.
	maxRefusals = 2
	// pendingBlocks is how long another transaction of the account may take to
	// get into a block.
	pendingBlocks = 5
)

// Preflight implements chain.Adapter. Beyond its own checks it has the node
// rehearse the transaction.
func (a *Adapter) Preflight(ctx context.Context, r chain.StakeRequest) error {
	op, amount, err := a.request(r)
	if err != nil {
		return err
	}
	var p plan
	err = a.use(ctx, func(ctx context.Context, e chain.Endpoint) (err error) {
		p, err = a.planStake(ctx, e, op, r.Moniker, amount)
		return err
	})
	if err != nil || p.action == "" {
		return err
	}
	draft, err := a.draft(ctx, op, p, r.Origin)
	var refusal *Refusal
	for range maxSequences {
		if !errors.As(err, &refusal) || !refusal.wrongSequence() {
			break
		}
		// Another transaction of the account is on its way.
		if err := a.awaitSequence(ctx, op, refusal); err != nil {
			return err
		}
		draft, err = a.draft(ctx, op, p, r.Origin)
	}
	if err != nil {
		return err
	}
	return a.use(ctx, func(ctx context.Context, e chain.Endpoint) error {
		spends, denom := p.spends, draft.feeDenom
		if denom != a.denom {
			has, err := a.balance(ctx, e, op.account, denom, 0)
			if err != nil {
				return err
			}
			if has.Cmp(draft.fee) < 0 {
				return fault.New(fault.Chain, "insufficient funds: account %s has %s%s, but the fee is %s%s", op.account, has, denom, draft.fee, denom)
			}
			return nil
		}
		has, err := a.balance(ctx, e, op.account, denom, 0)
		if err != nil {
			return err
		}
		return a.enough(op, has, spends, draft.fee)
	})
}

func (a *Adapter) request(r chain.StakeRequest) (operator, *big.Int, error) {
	op, err := a.operator(r.Keys)
	if err != nil {
		return operator{}, nil, err
	}
	amount, err := a.amount(r.Amount)
	return op, amount, err
}

// Stake implements chain.Adapter: it creates the validator, or brings one back
// that withdrew its stake. A jailed one is refused: see Unjail.
func (a *Adapter) Stake(ctx context.Context, r chain.StakeRequest) (chain.Receipt, error) {
	op, amount, err := a.request(r)
	if err != nil {
		return chain.Receipt{}, err
	}
	return a.effect(ctx, op, r.Origin, func(ctx context.Context, e chain.Endpoint) (plan, error) {
		return a.planStake(ctx, e, op, r.Moniker, amount)
	})
}

// Unstake implements chain.Adapter: it undelegates exactly what the operator has
// delegated to its own validator. That puts the validator out of the set even if
// others have delegated to it, since its own share falls below the minimum.
func (a *Adapter) Unstake(ctx context.Context, r chain.UnstakeRequest) (chain.Receipt, error) {
	op, err := a.operator(r.Keys)
	if err != nil {
		return chain.Receipt{}, err
	}
	return a.effect(ctx, op, r.Origin, func(ctx context.Context, e chain.Endpoint) (plan, error) {
		return a.planUnstake(ctx, e, op)
	})
}

// Unjail implements chain.Adapter. It waits up to two minutes for the jail to
// open, by the chain's clock, if the context lasts that long.
func (a *Adapter) Unjail(ctx context.Context, r chain.UnstakeRequest) (chain.Receipt, error) {
	op, err := a.operator(r.Keys)
	if err != nil {
		return chain.Receipt{}, err
	}
	return a.effect(ctx, op, r.Origin, func(ctx context.Context, e chain.Endpoint) (plan, error) {
		return a.planUnjail(ctx, e, op)
	})
}

// effect reads the state, decides, and sends, and does it again when what came
// back says that the state has changed in between.
func (a *Adapter) effect(ctx context.Context, op operator, origin chain.Origin, decide func(context.Context, chain.Endpoint) (plan, error)) (chain.Receipt, error) {
	var (
		sequences, refusals int
		moreGas             bool
	)
	for {
		var p plan
		err := a.use(ctx, func(ctx context.Context, e chain.Endpoint) (err error) {
			p, err = decide(ctx, e)
			return err
		})
		if err != nil {
			return chain.Receipt{}, err
		}
		if p.action == "" {
			return chain.Receipt{Detail: p.detail}, nil
		}
		receipt, err := a.send(ctx, op, p, origin, moreGas)
		var refusal *Refusal
		if err == nil || !errors.As(err, &refusal) {
			return receipt, err
		}
		refusal.What = strings.Join([]string{p.action, "of", op.valoper}, " ")
		switch {
		case refusal.wrongSequence() && sequences < maxSequences-1:
			sequences++
			err = a.awaitSequence(ctx, op, refusal)
		case refusal.isSDK(codeOutOfGas) && refusal.Stage == StageBlock && !moreGas:
			moreGas, err = true, nil
		case refusal.aboutState() && refusals < maxRefusals:
			refusals++
			err = a.awaitBlock(ctx, 1, nil)
		}
		if err != nil {
			return chain.Receipt{}, err
		}
	}
}

// awaitSequence waits until the account's transaction that took a sequence
// number is in a block, so that the state which is read next includes it. It is
// no error if that doesn't happen: such a transaction can be dropped.
func (a *Adapter) awaitSequence(ctx context.Context, op operator, r *Refusal) error {
	want, ok := r.expected()
	if !ok {
		return a.awaitBlock(ctx, 1, nil)
	}
	return a.awaitBlock(ctx, pendingBlocks, func(ctx context.Context, e chain.Endpoint) (bool, error) {
		acc, err := a.account(ctx, e, op.account)
		return acc.sequence >= want, err
	})
}
