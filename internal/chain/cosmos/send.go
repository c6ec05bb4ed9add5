package cosmos

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

const (
	// againAfter is after how many blocks a transaction that is in none of them
	// is sent once more: the node that had it may be gone.
	againAfter = 3
	// settle is how many blocks beyond the timeout height are waited for: a
	// node's index follows its blocks.
	settle = 2
)

// memo marks a transaction with the run that sent it.
func memo(o chain.Origin) string {
	if o.Run == "" {
		return ""
	}
	return fmt.Sprintf("rollcall token=%d run=%s", o.Token, o.Run)
}

// draft fills in everything of a transaction: account, sequence, and, from a
// rehearsal on a node, gas and fee.
func (a *Adapter) draft(ctx context.Context, op operator, p plan, origin chain.Origin) (unsigned, error) {
	tx := unsigned{chainID: a.chainID, msgs: p.msgs, memo: memo(origin), fee: new(big.Int)}
	err := a.use(ctx, func(ctx context.Context, e chain.Endpoint) error {
		var (
			acc  account
			cost price
			used uint64
			node chain.Node
		)
		err := together(
			func() (err error) { acc, err = a.account(ctx, e, op.account); return err },
			func() (err error) { cost, err = a.price(ctx, e); return err },
			func() (err error) { node, err = a.rpc.Status(ctx, e); return err },
		)
		if err != nil {
			return err
		}
		tx.account, tx.sequence, tx.timeout = acc.number, acc.sequence, node.Height+a.timeoutBlocks
		tx.gas, tx.fee, tx.feeDenom = 0, new(big.Int), cost.denom
		// A rehearsal checks the sequence but not the signature.
		if used, _, err = ask(ctx, a, e, pathSimulate, tx.sign(op).raw, 0, parseSimulation); err != nil {
			return err
		}
		tx.gas = scale(used, a.gasAdjustment)
		tx.fee = feeFor(tx.gas, cost)
		return nil
	})
	return tx, err
}

func scale(gas uint64, by *big.Rat) uint64 {
	r := new(big.Rat).Mul(new(big.Rat).SetInt(new(big.Int).SetUint64(gas)), by)
	return ceil(r).Uint64()
}

// feeFor rounds up: the chain refuses less than gas times price.
func feeFor(gas uint64, p price) *big.Int {
	return ceil(new(big.Rat).Mul(new(big.Rat).SetInt(new(big.Int).SetUint64(gas)), p.amount))
}

func ceil(r *big.Rat) *big.Int {
	n := new(big.Int).Add(r.Num(), r.Denom())
	return n.Sub(n, big.NewInt(1)).Quo(n, r.Denom())
}

// send makes the transaction of a plan and sees it into a block. moreGas doubles
// the gas.
func (a *Adapter) send(ctx context.Context, op operator, p plan, origin chain.Origin, moreGas bool) (chain.Receipt, error) {
	tx, err := a.draft(ctx, op, p, origin)
	if err != nil {
		return chain.Receipt{}, err
	}
	if moreGas {
		perGas := new(big.Rat).SetFrac(tx.fee, new(big.Int).SetUint64(tx.gas))
		tx.gas *= 2
		tx.fee = feeFor(tx.gas, price{amount: perGas})
	}
	done := tx.sign(op)
	result, err := a.deliver(ctx, done, origin)
	if err != nil {
		return chain.Receipt{}, err
	}
	if result.Code != 0 {
		return chain.Receipt{}, (&Refusal{
			Stage: StageBlock, What: p.action, Codespace: result.Codespace, Code: result.Code, Log: result.Log,
			Hash: done.hash, Height: result.Height, GasUsed: result.GasUsed,
		}).fault()
	}
	return chain.Receipt{Sent: true, Hash: done.hash, Height: result.Height, Effective: result.Height + comet.ChangeDelay, Detail: p.detail}, nil
}

// deliver sends a signed transaction until it is found in a block, or can't get
// into one any more. Sending the same bytes twice is harmless: their sequence
// number lets them in once.
func (a *Adapter) deliver(ctx context.Context, tx signed, origin chain.Origin) (comet.TxResult, error) {
	if origin.Sending != nil {
		origin.Sending(tx.hash)
	}
	var (
		height  = tx.timeout - a.timeoutBlocks // latest known height
		sendAt  = height                       // send (again) from this height on
		held    bool                           // a node has it, or may have it
		last    error
		moved   = time.Now()
		scanned = height - 1 // blocks up to here don't hold it
		taken   int64        // height at which the sequence number was seen to be used
	)
	for {
		if height >= sendAt && height < tx.timeout {
			if err := check(ctx, origin); err != nil {
				return comet.TxResult{}, a.pending(tx, held, err)
			}
			o, err := a.broadcast(ctx, tx)
			switch {
			case o.accepted:
				held, sendAt, last = true, height+againAfter, nil
			case o.maybe || held:
				held, sendAt, last = true, height+1, err
			case o.full:
				sendAt, last = height+1, err
			default:
				return comet.TxResult{}, err
			}
		}
		if err := a.pause(ctx); err != nil {
			return comet.TxResult{}, a.pending(tx, held, err)
		}
		var (
			node   chain.Node
			acc    account
			result *comet.TxResult
		)
		err := a.use(ctx, func(ctx context.Context, e chain.Endpoint) (err error) {
			// First the height, then the look: a transaction that isn't found
			// then isn't in the blocks up to it.
			if node, err = a.rpc.Status(ctx, e); err != nil {
				return err
			}
			if acc, err = a.account(ctx, e, tx.signer); err != nil {
				return err
			}
			result, err = a.lookup(ctx, e, tx, &scanned, node.Height)
			return err
		})
		switch {
		case err != nil && ctx.Err() != nil:
			return comet.TxResult{}, a.pending(tx, held, context.Cause(ctx))
		case err != nil && !elsewhere(err):
			return comet.TxResult{}, a.pending(tx, held, err)
		case err != nil:
			last = err
		case result != nil:
			return *result, nil
		case node.Height > height:
			height, moved = node.Height, time.Now()
		}
		if taken == 0 && err == nil && acc.sequence > tx.sequence {
			taken = height
		}
		if taken > 0 && height >= taken+settle {
			// Another transaction of the account went in before this one.
			return comet.TxResult{}, (&Refusal{
				Stage: StageCheck, What: "the transaction", Codespace: spaceSDK, Code: codeSequence, Hash: tx.hash,
				Log: fmt.Sprintf("account sequence was used by another transaction: expected %d, got %d", acc.sequence, tx.sequence),
			}).fault()
		}
		if height >= tx.timeout+settle {
			e := fault.New(fault.TimedOut, "transaction %s is in no block up to %d, and can't get into a later one", tx.hash, tx.timeout)
			if last != nil {
				e = fault.New(fault.TimedOut, "%w: %w", e, last)
			}
			return comet.TxResult{}, e.Do("run again")
		}
		if time.Since(moved) > a.pace.still {
			return comet.TxResult{}, a.pending(tx, held, a.halted(height, last))
		}
	}
}

// check asks whether the lock is still ours.
func check(ctx context.Context, origin chain.Origin) error {
	if origin.Check == nil {
		return nil
	}
	return origin.Check(ctx)
}

// pending says of an error that a transaction may still get into a block.
func (a *Adapter) pending(tx signed, held bool, err error) error {
	if !held {
		return fmt.Errorf("send transaction %s: %w", tx.hash, err)
	}
	return fmt.Errorf("wait for transaction %s, which may still get into a block up to %d: %w", tx.hash, tx.timeout, err)
}

// offer is what came of offering a transaction to the nodes.
type offer struct {
	accepted bool // a node has it in its mempool
	maybe    bool // a node didn't answer and could have it
	full     bool // a node's mempool has no room for it
}

// broadcast offers a transaction to the nodes in turn, until one takes it or
// says no; the error is the last word of those that didn't take it.
func (a *Adapter) broadcast(ctx context.Context, tx signed) (o offer, err error) {
	err = a.round(ctx, func(ctx context.Context, e chain.Endpoint) error {
		r, err := a.rpc.BroadcastTxSync(ctx, e, tx.raw)
		refusal := &Refusal{Stage: StageCheck, What: "the transaction", Codespace: r.Codespace, Code: r.Code, Log: r.Log, Hash: tx.hash}
		switch {
		case errors.Is(err, comet.ErrInCache):
			o.accepted = true
			return nil
		case err != nil:
			o.maybe = o.maybe || !unsent(err)
			return err
		case r.Code == 0, refusal.isSDK(codeInCache):
			o.accepted = true
			return nil
		case refusal.isSDK(codeMempoolFull):
			o.full = true
			return fault.New(fault.Transient, "%w", refusal)
		}
		return refusal.fault()
	})
	return o, err
}

// unsent reports whether a request certainly didn't reach a node.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// lookup returns the result of a transaction from a block up to height, or nil.
// scanned is where a search block by block got to, for nodes without an index.
func (a *Adapter) lookup(ctx context.Context, e chain.Endpoint, tx signed, scanned *int64, height int64) (*comet.TxResult, error) {
	result, err := a.rpc.Tx(ctx, e, tx.hash)
	switch {
	case err == nil:
		return &result, nil
	case errors.Is(err, comet.ErrNoTx):
		return nil, nil
	case !errors.Is(err, comet.ErrNoIndex):
		return nil, err
	}
	for h := *scanned + 1; h <= height; h++ {
		block, err := a.rpc.Block(ctx, e, h)
		if err != nil {
			return nil, err
		}
		for i, raw := range block.Txs {
			if comet.Hash(raw) != tx.hash {
				continue
			}
			results, err := a.rpc.BlockResults(ctx, e, h)
			if err != nil {
				return nil, err
			}
			if i >= len(results.Txs) {
				return nil, fault.New(fault.Transient, "%s has no results of block %d yet", name(e), h)
			}
			result := results.Txs[i]
			result.Hash = tx.hash
			return &result, nil
		}
		*scanned = h
	}
	return nil, nil
}
