package cosmos

import (
	"context"
	"encoding/hex"
	"math/big"
	"time"

	"github.com/decred/dcrd/bech32"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
)

// facts is everything about one validator at one height.
type facts struct {
	height    int64
	now       time.Time // time of the node's latest block, which may be a later one
	params    params
	record    *validator  // nil: there is none
	own       *big.Int    // tokens of the operator's own delegation
	unbonding []time.Time // completion of each of its entries
	signing   signing
}

// read collects the facts from one node.
func (a *Adapter) read(ctx context.Context, e chain.Endpoint, id chain.Identity) (facts, error) {
	f := facts{own: new(big.Int)}
	valcons, err := a.valcons(id.Address)
	if err != nil {
		return f, err
	}
	account, err := a.accountOf(id.Operator)
	if err != nil {
		return f, err
	}
	// The parameters come first, since their answer tells the height.
	if f.params, f.height, err = ask(ctx, a, e, pathParams, nil, 0, parseParams); err != nil {
		return f, err
	}
	self := message(nil).str(1, account).str(2, id.Operator)
	err = together(
		func() error {
			n, err := a.rpc.Status(ctx, e)
			f.now = n.BlockTime
			return err
		},
		func() error {
			v, _, err := ask(ctx, a, e, pathValidator, message(nil).str(1, id.Operator), f.height, parseValidatorResponse)
			if err == nil {
				f.record = &v
			}
			return unlessNotFound(err)
		},
		func() error {
			own, _, err := ask(ctx, a, e, pathDelegation, self, f.height, parseDelegation)
			if err == nil {
				f.own = own
			}
			return unlessNotFound(err)
		},
		func() (err error) {
			f.unbonding, _, err = ask(ctx, a, e, pathUnbonding, self, f.height, parseUnbonding)
			return unlessNotFound(err)
		},
		func() (err error) {
			f.signing, _, err = ask(ctx, a, e, pathSigning, message(nil).str(1, valcons), f.height, parseSigning)
			return unlessNotFound(err)
		},
	)
	return f, err
}

func unlessNotFound(err error) error {
	if isNotFound(err) {
		return nil
	}
	return err
}

// valcons is a consensus address in the chain's own form.
func (s settings) valcons(address string) (string, error) {
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw) != 20 {
		return "", fault.New(fault.Config, "%q isn't a consensus address", address)
	}
	text, err := bech32.EncodeFromBase256(s.prefix+"valcons", raw)
	if err != nil {
		return "", fault.New(fault.Config, "write address with prefix %q: %w", s.prefix, err)
	}
	return text, nil
}

// accountOf is the account of an operator: the same bytes under another prefix.
func (s settings) accountOf(operator string) (string, error) {
	hrp, raw, err := bech32.DecodeToBase256(operator)
	if err != nil || hrp != s.prefix+"valoper" {
		return "", fault.New(fault.Config, "%q isn't an operator address with prefix %svaloper", operator, s.prefix)
	}
	text, err := bech32.EncodeFromBase256(s.prefix, raw)
	if err != nil {
		return "", fault.New(fault.Config, "write address with prefix %q: %w", s.prefix, err)
	}
	return text, nil
}

// foreign reports whether the operator's record is for another consensus key.
func (f facts) foreign(id chain.Identity) bool {
	if f.record == nil {
		return false
	}
	return keys.Address(f.record.pubKey) != id.Address
}

// left reports whether the validator left by its own wish: it withdrew so much
// of its own stake that the chain put it out, which looks like being jailed.
func (f facts) left() bool {
	return f.record != nil && f.own.Cmp(f.record.minSelf) < 0 && (f.own.Sign() == 0 || len(f.unbonding) > 0)
}

// status follows the table of what records mean. A record that says bonded isn't
// proof of being in the set: a change is effective two blocks later.
func (f facts) status() chain.Status {
	switch {
	case f.signing.tombstoned:
		return chain.Tombstoned
	case f.record == nil || f.left():
		if len(f.unbonding) > 0 {
			return chain.Unstaking
		}
		return chain.Unstaked
	case f.record.jailed:
		return chain.Jailed
	case f.record.tokens.Sign() == 0:
		return chain.Unstaked
	case f.record.status == bondBonded:
		return chain.Bonded
	}
	return chain.Waiting
}

// Record implements chain.Adapter. All of it is of one height, from one node.
func (a *Adapter) Record(ctx context.Context, id chain.Identity) (chain.Record, error) {
	var f facts
	err := a.use(ctx, func(ctx context.Context, e chain.Endpoint) (err error) {
		f, err = a.read(ctx, e, id)
		return err
	})
	if err != nil {
		return chain.Record{}, err
	}
	r := chain.Record{Status: f.status(), Tokens: "0", Height: f.height, Foreign: f.foreign(id)}
	if f.record != nil {
		r.Tokens, r.Power = f.record.tokens.String(), a.power(f.record.tokens)
	}
	if f.signing.jailedUntil.Unix() > 0 {
		r.JailedUntil = f.signing.jailedUntil
	}
	return r, nil
}
