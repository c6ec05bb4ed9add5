package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
)

const (
	// trustFor is how long an endpoint's proof of its chain id lasts: an address
	// in a cluster can become another pod's.
	trustFor = 30 * time.Second
	// rounds and roundPause bound how often all endpoints are tried for one
	// question before it counts as unanswered.
	rounds     = 2
	roundPause = 500 * time.Millisecond
)

// Adapter implements chain.Adapter. It may be used by several goroutines.
type Adapter struct {
	settings
	chainID   string
	endpoints []chain.Endpoint
	rpc       *comet.Client
	pace      pace

	preferred atomic.Int64 // index of the endpoint that answered last
	mu        sync.Mutex
	verified  map[chain.Endpoint]time.Time
}

// pace holds the durations that tests shorten.
type pace struct {
	poll time.Duration // between looks for a transaction or a block
	// still is how long the chain may stand still before a wait gives up.
	still time.Duration
	// jail is the longest time that is waited for a jail to open.
	jail time.Duration
}

var _ chain.Adapter = (*Adapter)(nil)

// New makes an adapter for the chain chainID, whose nodes' RPC is at endpoints;
// the first that answers is used. The options, all of which may be left out, are
// bech32Prefix, denom, coinType, gasPrice (empty: what the node asks for),
// gasAdjustment, powerReduction, commissionRate, commissionMaxRate,
// commissionMaxChangeRate, minSelfDelegation, txTimeoutBlocks and haltAfter. An
// error is a fault.Config with every problem of the options. Nothing is asked of the nodes.
func New(options map[string]string, chainID string, endpoints []chain.Endpoint) (*Adapter, error) {
	s, err := parseSettings(options)
	if err != nil {
		return nil, err
	}
	if chainID == "" {
		return nil, fault.New(fault.Config, "no chain id for the cosmos adapter")
	}
	if len(endpoints) == 0 {
		return nil, fault.New(fault.Config, "no RPC endpoint for chain %s", chainID)
	}
	for _, e := range endpoints {
		if _, err := comet.URL(e); err != nil {
			return nil, err
		}
	}
	return &Adapter{
		settings: s, chainID: chainID, endpoints: slices.Clone(endpoints), rpc: comet.New(),
		pace:     pace{poll: 200 * time.Millisecond, still: s.haltAfter, jail: 2 * time.Minute},
		verified: map[chain.Endpoint]time.Time{},
	}, nil
}

// Endpoints implements chain.Adapter.
func (a *Adapter) Endpoints() []chain.Endpoint { return slices.Clone(a.endpoints) }

// Identity implements chain.Adapter.
func (a *Adapter) Identity(k keys.Validator) (chain.Identity, error) {
	op, err := a.operator(k)
	if err != nil {
		return chain.Identity{}, err
	}
	return op.identity(), nil
}

func (o operator) identity() chain.Identity {
	return chain.Identity{Operator: o.valoper, Account: o.account, Address: o.address, PubKey: o.consensus}
}

// Node implements chain.Observer.
func (a *Adapter) Node(ctx context.Context, e chain.Endpoint) (chain.Node, error) {
	n, err := a.rpc.Node(ctx, e)
	if err != nil {
		return n, err
	}
	return n, a.sameChain(e, n)
}

// Set implements chain.Observer.
func (a *Adapter) Set(ctx context.Context, e chain.Endpoint, height int64) (chain.Set, error) {
	if err := a.verify(ctx, e, false); err != nil {
		return chain.Set{}, err
	}
	return a.rpc.Set(ctx, e, height)
}

// Commits implements chain.Observer.
func (a *Adapter) Commits(ctx context.Context, e chain.Endpoint, from, to int64) ([]chain.Commit, error) {
	if err := a.verify(ctx, e, false); err != nil {
		return nil, err
	}
	return a.rpc.Commits(ctx, e, from, to)
}

func (a *Adapter) sameChain(e chain.Endpoint, n chain.Node) error {
	if n.ChainID != a.chainID {
		return fault.New(fault.Config, "%s is a node of chain %q, but the network's chain is %q", name(e), n.ChainID, a.chainID).
			Do("correct the chain id or the endpoint")
	}
	return nil
}

// verify asks an endpoint for its chain id, unless it has told lately. With
// synced it also demands that the node isn't catching up.
func (a *Adapter) verify(ctx context.Context, e chain.Endpoint, synced bool) error {
	a.mu.Lock()
	at, ok := a.verified[e]
	a.mu.Unlock()
	if ok && time.Since(at) < trustFor {
		return nil
	}
	n, err := a.rpc.Status(ctx, e)
	if err != nil {
		return err
	}
	if err := a.sameChain(e, n); err != nil {
		return err
	}
	if n.CatchingUp || n.Height == 0 {
		if synced {
			return fault.New(fault.Transient, "%s is still catching up (height %d)", name(e), n.Height)
		}
		return nil // and no trust: it isn't fit for everything
	}
	a.mu.Lock()
	a.verified[e] = time.Now()
	a.mu.Unlock()
	return nil
}

func (a *Adapter) distrust(e chain.Endpoint) {
	a.mu.Lock()
	delete(a.verified, e)
	a.mu.Unlock()
}

// elsewhere reports whether another node might answer where this one didn't.
func elsewhere(err error) bool {
	return fault.Is(err, fault.Transient) || errors.Is(err, comet.ErrGarbage)
}

// use runs f with the endpoint that answered last, and with the others if it
// doesn't any more. f must be harmless to repeat.
func (a *Adapter) use(ctx context.Context, f func(ctx context.Context, e chain.Endpoint) error) error {
	backoff := retry.WithMaxRetries(rounds-1, retry.NewConstant(roundPause))
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		err := a.round(ctx, f)
		if fault.Is(err, fault.Transient) && ctx.Err() == nil {
			return retry.RetryableError(err)
		}
		return err
	})
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		// The cause tells more, for example that the lock was lost.
		return fmt.Errorf("ask chain %s: %w", a.chainID, context.Cause(ctx))
	}
	return err
}

// round tries each endpoint once.
func (a *Adapter) round(ctx context.Context, f func(ctx context.Context, e chain.Endpoint) error) error {
	var failures []error
	first := int(a.preferred.Load())
	for i := range a.endpoints {
		at := (first + i) % len(a.endpoints)
		e := a.endpoints[at]
		err := a.verify(ctx, e, true)
		if err == nil {
			err = f(ctx, e)
		}
		switch {
		case err == nil:
			a.preferred.Store(int64(at))
			return nil
		case ctx.Err() != nil || !elsewhere(err):
			return err
		}
		a.distrust(e)
		failures = append(failures, err)
	}
	if len(failures) == 1 {
		return failures[0]
	}
	code := fault.Transient
	texts := make([]string, len(failures))
	for i, err := range failures {
		texts[i] = err.Error()
		if !fault.Is(err, fault.Transient) {
			code = fault.CodeOf(err)
		}
	}
	return fault.New(code, "no node of chain %s answered: %s", a.chainID, strings.Join(texts, " | "))
}

// together runs functions at the same time and returns the first error in the
// order of the arguments.
func together(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// name returns an endpoint for an error, without a password.
func name(e chain.Endpoint) string {
	u, err := url.Parse(string(e))
	if err != nil {
		return "the node"
	}
	return u.Redacted()
}

// pause waits for one poll interval.
func (a *Adapter) pause(ctx context.Context) error {
	t := time.NewTimer(a.pace.poll)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// awaitBlock waits until the chain is n blocks further, or done says so. It
// gives up when the chain stands still for long.
func (a *Adapter) awaitBlock(ctx context.Context, n int64, done func(ctx context.Context, e chain.Endpoint) (bool, error)) error {
	var start, last int64
	moved := time.Now()
	for {
		var status chain.Node
		var finished bool
		err := a.use(ctx, func(ctx context.Context, e chain.Endpoint) (err error) {
			if status, err = a.rpc.Status(ctx, e); err != nil || done == nil {
				return err
			}
			finished, err = done(ctx, e)
			return err
		})
		switch {
		case err != nil && !elsewhere(err):
			return err
		case err == nil && finished:
			return nil
		case err == nil && status.Height > last:
			if start == 0 {
				start = status.Height
			}
			if last, moved = status.Height, time.Now(); last >= start+n {
				return nil
			}
		case time.Since(moved) > a.pace.still:
			return a.halted(last, err)
		}
		if err := a.pause(ctx); err != nil {
			return fmt.Errorf("wait for a block after %d: %w", last, err)
		}
	}
}

func (a *Adapter) halted(height int64, last error) error {
	if last != nil {
		return fault.New(fault.TimedOut, "no node of chain %s answered for %s: %w", a.chainID, a.pace.still, last)
	}
	return fault.New(fault.TimedOut, "chain %s made no block after %d for %s", a.chainID, height, a.pace.still).
		Do("check that more than two thirds of the voting power run")
}
