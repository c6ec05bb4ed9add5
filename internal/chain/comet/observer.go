package comet

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

const (
	// perPage is the most that CometBFT gives in one page.
	perPage = 100
	// parallelCommits is how many commits are asked for at the same time.
	parallelCommits = 8
	// maxCommits bounds one call of Commits: a day of 1 s blocks is not what it
	// is for.
	maxCommits = 10000
)

var _ chain.Observer = (*Client)(nil)

// Status returns what the node says of itself, without the number of peers: one
// request instead of the two of Node.
func (c *Client) Status(ctx context.Context, e chain.Endpoint) (n chain.Node, err error) {
	err = c.call(ctx, e, "status", nil, func(raw []byte) error {
		n, err = parseStatus(raw)
		return err
	})
	return n, err
}

// Node implements chain.Observer.
func (c *Client) Node(ctx context.Context, e chain.Endpoint) (chain.Node, error) {
	var (
		peers    int
		peersErr error
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		peersErr = c.call(ctx, e, "net_info", nil, func(raw []byte) (err error) {
			peers, err = parseNetInfo(raw)
			return err
		})
	}()
	n, err := c.Status(ctx, e)
	<-done
	if err == nil {
		err = peersErr
	}
	n.Peers = peers
	return n, err
}

// Set implements chain.Observer. A node knows the set of the block after its
// latest one, too; of anything later the error is ErrFutureHeight.
func (c *Client) Set(ctx context.Context, e chain.Endpoint, height int64) (chain.Set, error) {
	if height == 0 {
		n, err := c.Status(ctx, e)
		if err != nil {
			return chain.Set{}, err
		}
		if height = n.Height; height == 0 {
			return chain.Set{}, fault.New(fault.Transient, "ask %s for the validator set: the node has no block yet", name(e))
		}
	}
	members, err := c.members(ctx, e, height)
	if err != nil {
		return chain.Set{}, err
	}
	return toSet(height, members), nil
}

func toSet(height int64, members []member) chain.Set {
	s := chain.Set{Height: height, Members: make([]chain.Member, len(members))}
	for i, m := range members {
		s.Members[i] = m.Member
	}
	return s
}

func (c *Client) members(ctx context.Context, e chain.Endpoint, height int64) ([]member, error) {
	var all []member
	seen := map[string]bool{}
	for n := 1; ; n++ {
		var p page
		err := c.call(ctx, e, "validators", map[string]any{
			"height": fmt.Sprint(height), "page": fmt.Sprint(n), "per_page": fmt.Sprint(perPage),
		}, func(raw []byte) (err error) {
			if p, err = parseValidators(raw); err != nil {
				return err
			}
			if p.height != height {
				return fmt.Errorf("asked for height %d, got %d", height, p.height)
			}
			if len(all)+len(p.members) > p.total {
				return fmt.Errorf("%d validators of a total of %d", len(all)+len(p.members), p.total)
			}
			for _, m := range p.members {
				if seen[m.Address] {
					return fmt.Errorf("validator %s twice", m.Address)
				}
				seen[m.Address] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, p.members...)
		if len(all) == p.total {
			break
		}
	}
	var power int64
	for _, m := range all {
		// Both are at most 2^60, so the sum can't overflow before the check.
		if power += m.Power; power > maxPower {
			return nil, fault.New(fault.Chain, "%s %w (validators): more voting power than the protocol allows", name(e), ErrGarbage)
		}
	}
	return all, nil
}

func (c *Client) commit(ctx context.Context, e chain.Endpoint, height int64) (h signedHeader, err error) {
	err = c.call(ctx, e, "commit", map[string]any{"height": fmt.Sprint(height)}, func(raw []byte) error {
		if h, err = parseCommit(raw); err != nil {
			return err
		}
		if h.height != height {
			return fmt.Errorf("asked for height %d, got %d", height, h.height)
		}
		return nil
	})
	return h, err
}

// Commits implements chain.Observer. The error for a height that is the node's
// latest, whose commit isn't canonical yet, is ErrFutureHeight as well.
func (c *Client) Commits(ctx context.Context, e chain.Endpoint, from, to int64) ([]chain.Commit, error) {
	if from < 1 || to < from || to-from >= maxCommits {
		return nil, fmt.Errorf("ask %s for commits: heights %d to %d make no sense", name(e), from, to)
	}
	out := make([]chain.Commit, to-from+1)
	// The last one first: if it isn't there yet nothing else needs asking, and
	// usually it fills the cache with the set of all of them.
	if err := c.commitInto(ctx, e, to, &out[to-from]); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	heights := make(chan int64)
	var wg sync.WaitGroup
	for range min(parallelCommits, to-from) {
		wg.Go(func() {
			for h := range heights {
				if err := c.commitInto(ctx, e, h, &out[h-from]); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
feed:
	for h := from; h < to; h++ {
		select {
		case heights <- h:
		case <-ctx.Done():
			break feed
		}
	}
	close(heights)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

func (c *Client) commitInto(ctx context.Context, e chain.Endpoint, height int64, into *chain.Commit) error {
	h, err := c.commit(ctx, e, height)
	if err != nil {
		return err
	}
	if !h.canonical {
		return fault.New(fault.Transient, "ask %s for commit %d: %w: it is the latest block, whose commit isn't final", name(e), height, ErrFutureHeight)
	}
	members, err := c.membersFor(ctx, e, h)
	if err != nil {
		return err
	}
	if len(members) != len(h.signatures) {
		return fault.New(fault.Chain, "%s %w (commit %d): %d signatures for %d validators", name(e), ErrGarbage, height, len(h.signatures), len(members))
	}
	votes := make(map[string]chain.Vote, len(members))
	for i, s := range h.signatures {
		if s.vote != chain.Absent && s.address != members[i].Address {
			return fault.New(fault.Chain, "%s %w (commit %d): signature %d is of %s, but the validator there is %s",
				name(e), ErrGarbage, height, i, s.address, members[i].Address)
		}
		if s.vote != chain.Absent && members[i].keyType == keyEd25519 && !ed25519.Verify(members[i].PubKey, h.signBytes(s), s.bytes) {
			return fault.New(fault.Chain, "%s %w (commit %d): the signature of %s is wrong", name(e), ErrGarbage, height, s.address)
		}
		votes[members[i].Address] = s.vote
	}
	*into = chain.Commit{Height: height, Time: h.time, Votes: votes}
	return nil
}

// membersFor returns the set that signed the header's block.
func (c *Client) membersFor(ctx context.Context, e chain.Endpoint, h signedHeader) ([]member, error) {
	if m, ok := c.sets.get(h.validatorsHash); ok {
		return m, nil
	}
	m, err := c.members(ctx, e, h.height)
	if err != nil {
		return nil, err
	}
	hash, err := hashSet(m)
	if errors.Is(err, errUnhashable) {
		return m, nil
	}
	if hash != h.validatorsHash {
		return nil, fault.New(fault.Chain, "%s %w (validators %d): the set's hash is %s, but the block says %s", name(e), ErrGarbage, h.height, hash, h.validatorsHash)
	}
	c.sets.put(hash, m)
	return m, nil
}

// name returns the endpoint for an error.
func name(e chain.Endpoint) string {
	u, err := url.Parse(string(e))
	if err != nil {
		return "the node"
	}
	return u.Redacted()
}
