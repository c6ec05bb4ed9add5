package initnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"
)

const (
	pollEvery     = 250 * time.Millisecond
	lookupTimeout = 2 * time.Second
)

var errSomeUnresolved = errors.New("some peer names do not resolve yet")

// waitForPeers waits until the peers' names resolve and returns those that do.
// A node of the genesis goes on without any, since someone must be first; any
// other node has nothing to start from then.
func waitForPeers(ctx context.Context, cfg Config, deps Deps, chain genesis) ([]string, error) {
	var (
		resolved []string
		last     error
		since    time.Time
	)
	start := time.Now()
	err := retry.Do(ctx, retry.WithMaxDuration(cfg.Wait, retry.NewConstant(pollEvery)), func(ctx context.Context) error {
		resolved, last = resolve(ctx, deps, chain.hosts)
		if len(resolved) > 0 && since.IsZero() {
			since = time.Now()
		}
		settled := !since.IsZero() && len(resolved) > 0 && time.Since(since) >= cfg.Settle
		if last == nil || settled {
			return nil
		}
		return retry.RetryableError(errSomeUnresolved)
	})
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("wait for peers: %w", context.Cause(ctx))
	}
	switch {
	case err == nil && last == nil:
	case len(resolved) > 0 || chain.inGenesis:
		deps.Log.Warn("starting without some peers: their names do not resolve", "resolved", strings.Join(resolved, ","), "err", last)
	default:
		return nil, fmt.Errorf("wait for peers: none of %s resolved within %s: %w", strings.Join(chain.hosts, ", "), time.Since(start).Round(time.Second), last)
	}
	return resolved, nil
}

// resolve returns the hosts whose names resolve, and the last error of the others.
func resolve(ctx context.Context, deps Deps, hosts []string) (resolved []string, last error) {
	for _, host := range hosts {
		lookup, cancel := context.WithTimeout(ctx, lookupTimeout)
		_, err := deps.LookupHost(lookup, host)
		cancel()
		if err != nil {
			last = fmt.Errorf("look up %s: %w", host, err)
			continue
		}
		resolved = append(resolved, host)
	}
	return resolved, last
}
