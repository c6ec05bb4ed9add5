package comet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/chain"
)

// Hash returns the hash by which CometBFT knows a transaction, uppercase hex.
func Hash(tx []byte) string {
	sum := sha256.Sum256(tx)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// ABCIQuery asks the application; height 0 means its latest state. A refusal by
// the application is a QueryResult with a Code other than 0, not an error.
func (c *Client) ABCIQuery(ctx context.Context, e chain.Endpoint, path string, data []byte, height int64) (q QueryResult, err error) {
	err = c.call(ctx, e, "abci_query", map[string]any{
		"path": path, "data": hex.EncodeToString(data), "height": fmt.Sprint(height), "prove": false,
	}, func(raw []byte) error {
		q, err = parseQuery(raw)
		return err
	})
	return q, err
}

// BroadcastTxSync puts a transaction into the node's mempool if the application
// lets it. ErrInCache means that it was there before.
func (c *Client) BroadcastTxSync(ctx context.Context, e chain.Endpoint, tx []byte) (r CheckResult, err error) {
	err = c.call(ctx, e, "broadcast_tx_sync", map[string]any{"tx": tx}, func(raw []byte) error {
		if r, err = parseBroadcast(raw); err != nil {
			return err
		}
		if want := Hash(tx); r.Hash != want {
			return fmt.Errorf("sent transaction %s, got %s", want, r.Hash)
		}
		return nil
	})
	return r, err
}

// Tx returns a transaction's result from the block that holds it. ErrNoTx means
// that the node has indexed no such block: indexing follows a block by
// milliseconds. ErrNoIndex means that the node never will.
func (c *Client) Tx(ctx context.Context, e chain.Endpoint, hash string) (r TxResult, err error) {
	raw, err := hex.DecodeString(hash)
	if err != nil || len(raw) != sha256.Size {
		return TxResult{}, fmt.Errorf("look up transaction: %q isn't a hash", clip(hash, quoted))
	}
	err = c.call(ctx, e, "tx", map[string]any{"hash": raw, "prove": false}, func(answer []byte) error {
		if r, err = parseTx(answer); err != nil {
			return err
		}
		if !strings.EqualFold(r.Hash, hash) {
			return fmt.Errorf("asked for transaction %s, got %s", hash, r.Hash)
		}
		return nil
	})
	return r, err
}

// Block returns the block of a height.
func (c *Client) Block(ctx context.Context, e chain.Endpoint, height int64) (b Block, err error) {
	err = c.call(ctx, e, "block", map[string]any{"height": fmt.Sprint(height)}, func(raw []byte) error {
		if b, err = parseBlock(raw); err != nil {
			return err
		}
		if b.Height != height {
			return fmt.Errorf("asked for height %d, got %d", height, b.Height)
		}
		return nil
	})
	return b, err
}

// BlockResults returns the outcome of a height's block.
func (c *Client) BlockResults(ctx context.Context, e chain.Endpoint, height int64) (r BlockResults, err error) {
	err = c.call(ctx, e, "block_results", map[string]any{"height": fmt.Sprint(height)}, func(raw []byte) error {
		if r, err = parseBlockResults(raw); err != nil {
			return err
		}
		if r.Height != height {
			return fmt.Errorf("asked for height %d, got %d", height, r.Height)
		}
		return nil
	})
	return r, err
}

// ConsensusParams returns the parameters at a height; 0 means the latest.
func (c *Client) ConsensusParams(ctx context.Context, e chain.Endpoint, height int64) (p ConsensusParams, err error) {
	params := map[string]any{}
	if height > 0 {
		params["height"] = fmt.Sprint(height)
	}
	err = c.call(ctx, e, "consensus_params", params, func(raw []byte) error {
		p, err = parseConsensusParams(raw)
		return err
	})
	return p, err
}
