//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/decred/dcrd/bech32"
	"github.com/stretchr/testify/require"
)

// chain asks the demo's chain directly, without a line of Rollcall's own code:
// through the API server's proxy to a genesis validator's pod.
type chain struct {
	d   *demo
	pod string
}

func (d *demo) chain() chain { return chain{d, statefulSet + "-0"} }

// number is a number that CometBFT writes as text.
type number int64

func (n *number) UnmarshalJSON(b []byte) error {
	s, err := strconv.Unquote(string(b))
	if err != nil {
		s = string(b)
	}
	v, err := strconv.ParseInt(s, 10, 64)
	*n = number(v)
	return err
}

func (c chain) get(ctx context.Context, port, path string, params map[string]string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	b, err := c.d.kube.CoreV1().Pods(namespace).ProxyGet("http", c.pod, port, path, params).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w: %.200s", c.pod, path, err, b)
	}
	return json.Unmarshal(b, into)
}

func (c chain) rpc(ctx context.Context, path string, params map[string]string, into any) error {
	var r struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := c.get(ctx, "26657", path, params, &r); err != nil {
		return err
	}
	if r.Error != nil {
		return fmt.Errorf("ask %s for %s: %s", c.pod, path, r.Error)
	}
	return json.Unmarshal(r.Result, into)
}

func (c chain) height(ctx context.Context) (int64, error) {
	var s struct {
		Info struct {
			Height number `json:"latest_block_height"`
		} `json:"sync_info"`
	}
	err := c.rpc(ctx, "status", nil, &s)
	return int64(s.Info.Height), err
}

func (c chain) heightNow(t *testing.T) int64 {
	t.Helper()
	h, err := c.height(request(t))
	require.NoError(t, err)
	return h
}

// validators returns the powers in the consensus set at a height by address.
func (c chain) validators(t *testing.T, height int64) map[string]int64 {
	t.Helper()
	var s struct {
		Validators []struct {
			Address string
			Power   number `json:"voting_power"`
		}
	}
	require.NoError(t, c.rpc(request(t), "validators", map[string]string{"height": strconv.FormatInt(height, 10), "per_page": "100"}, &s))
	out := map[string]int64{}
	for _, v := range s.Validators {
		out[v.Address] = int64(v.Power)
	}
	return out
}

// signers returns who signed the block at a height.
func (c chain) signers(t *testing.T, height int64) []string {
	t.Helper()
	var s struct {
		Header struct {
			Commit struct {
				Signatures []struct {
					Flag    int    `json:"block_id_flag"`
					Address string `json:"validator_address"`
				}
			}
		} `json:"signed_header"`
	}
	require.NoError(t, c.rpc(request(t), "commit", map[string]string{"height": strconv.FormatInt(height, 10)}, &s))
	var out []string
	for _, v := range s.Header.Commit.Signatures {
		if v.Flag == 2 { // for the block; 1 is absent, 3 is for nil
			out = append(out, v.Address)
		}
	}
	return out
}

// block is the head of one block.
type block struct {
	Height int64
	Time   time.Time
	Txs    int64
}

// blocks returns the blocks of the heights from to to, oldest first.
func (c chain) blocks(t *testing.T, from, to int64) (out []block) {
	t.Helper()
	const page = 20 // CometBFT's own limit
	for low := from; low <= to; low += page {
		var s struct {
			Metas []struct {
				Header struct {
					Height number
					Time   time.Time
				}
				Txs number `json:"num_txs"`
			} `json:"block_metas"`
		}
		high := min(low+page-1, to)
		require.NoError(t, c.rpc(request(t), "blockchain", map[string]string{"minHeight": strconv.FormatInt(low, 10), "maxHeight": strconv.FormatInt(high, 10)}, &s))
		require.Len(t, s.Metas, int(high-low+1))
		for _, m := range slices.Backward(s.Metas) { // newest first
			out = append(out, block{int64(m.Header.Height), m.Header.Time, int64(m.Txs)})
		}
	}
	return out
}

// txs counts the transactions in the blocks after a height, up to now.
func (c chain) txs(t *testing.T, after int64) (n int64) {
	t.Helper()
	for _, b := range c.blocks(t, after+1, c.heightNow(t)) {
		n += b.Txs
	}
	return n
}

// sequence is how many transactions an operator's account has sent.
func (c chain) sequence(t *testing.T, operator string) string {
	t.Helper()
	_, data, err := bech32.Decode(operator)
	require.NoError(t, err)
	account, err := bech32.Encode("cosmos", data)
	require.NoError(t, err)
	var s struct {
		Account struct{ Sequence string }
	}
	require.NoError(t, c.get(request(t), "1317", "cosmos/auth/v1beta1/accounts/"+account, nil, &s))
	return s.Account.Sequence
}

// firstOut returns the first height in (in, out] whose set is without the
// address; it is in the set at in and not at out, and left once in between.
func (c chain) firstOut(t *testing.T, address string, in, out int64) int64 {
	t.Helper()
	require.Contains(t, c.validators(t, in), address, "at height %d", in)
	require.NotContains(t, c.validators(t, out), address, "at height %d", out)
	return in + 1 + int64(sort.Search(int(out-in-1), func(i int) bool {
		_, is := c.validators(t, in+1+int64(i))[address]
		return !is
	}))
}

// pulse samples the height of the chain while something else happens.
type pulse struct {
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	from    int64
	last    int64
	grownAt time.Time
	gap     time.Duration // longest time without a new block
	fails   int
	err     error
}

const pulseEvery = 500 * time.Millisecond

func (d *demo) watchHeights(t *testing.T) *pulse {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &pulse{cancel: cancel, done: make(chan struct{}), grownAt: time.Now()}
	p.from = d.chain().heightNow(t)
	p.last = p.from
	go func() {
		defer close(p.done)
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			h, err := d.chain().height(ctx)
			p.note(ctx, h, err)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *pulse) note(ctx context.Context, h int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		p.fails, p.err = p.fails+1, err
	case err == nil && h > p.last:
		p.gap = max(p.gap, time.Since(p.grownAt))
		p.last, p.grownAt = h, time.Now()
	}
}

func (p *pulse) stop() *pulse {
	p.cancel()
	<-p.done
	return p
}

// longestPause is the longest time between two blocks by their own headers.
func longestPause(blocks []block) (pause time.Duration) {
	for i := 1; i < len(blocks); i++ {
		pause = max(pause, blocks[i].Time.Sub(blocks[i-1].Time))
	}
	return pause
}

// heightAt is the last of the blocks that was there at a moment: a block's
// header bears the time at which the one before it was decided, so the chain may
// be one block further, never less far.
func heightAt(blocks []block, at time.Time) (int64, error) {
	for _, b := range slices.Backward(blocks) {
		if !b.Time.After(at) {
			return b.Height, nil
		}
	}
	return 0, errors.New("before the first block")
}
