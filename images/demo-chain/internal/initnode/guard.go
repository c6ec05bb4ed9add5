package initnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	rpchttp "github.com/cometbft/cometbft/rpc/client/http"
	coretypes "github.com/cometbft/cometbft/rpc/core/types"
	"github.com/sethvargo/go-retry"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

// rpcTimeout bounds each request to a peer.
const rpcTimeout = 2 * time.Second

// Chain is the part of a node's RPC that the guard reads.
type Chain interface {
	Status(ctx context.Context) (*coretypes.ResultStatus, error)
	Commit(ctx context.Context, height *int64) (*coretypes.ResultCommit, error)
}

func dialChain(host string) (Chain, error) {
	return rpchttp.NewWithTimeout(fmt.Sprintf("http://%s:%d", host, nodeconfig.RPCPort), "/websocket", uint(rpcTimeout/time.Second))
}

// RecentSignatureError says that a key which is new to its volume signs, or
// signed moments ago, somewhere else.
type RecentSignatureError struct {
	Validator, ConsensusAddress string
	// Signed is the newest height with a signature of the key, Height the chain's.
	Signed, Height int64
}

// Error says what was found and what to do.
func (e *RecentSignatureError) Error() string {
	return fmt.Sprintf("refused to start %s: its consensus key %s signed block %d (the chain is at %d), but this volume has never signed; "+
		"either another process uses the key, which must be stopped, or the volume was lost: then wait until the key is missing from the last %d blocks",
		e.Validator, e.ConsensusAddress, e.Signed, e.Height, nodeconfig.GuardedCommits)
}

// errWrongChain is final: asking again does not change what chain a peer is on.
var errWrongChain = errors.New("peer is on another chain")

// guard asks peers whether the key signed any of the newest commits. A node of
// the genesis whose peers all give no answer is taken to be among the first to
// start; `start` then still looks through the blocks it gets. Any other node
// waits for an answer, at most cfg.Wait.
func guard(ctx context.Context, cfg Config, deps Deps, chain genesis, hosts []string, address string) error {
	var last error
	ask := func(ctx context.Context) error {
		for _, host := range hosts {
			err := askPeer(ctx, deps, host, chain.id, cfg.Name, address)
			var recent *RecentSignatureError
			if err == nil || errors.As(err, &recent) || errors.Is(err, errWrongChain) {
				return err
			}
			last = err
		}
		if chain.inGenesis {
			deps.Log.Info("no peer answers yet: taking this for the network's first start", "validator", cfg.Name, "err", last)
			return nil
		}
		return retry.RetryableError(fmt.Errorf("no peer says whether the key of %s signs elsewhere: %w", cfg.Name, last))
	}
	if err := retry.Do(ctx, retry.WithMaxDuration(cfg.Wait, retry.NewConstant(time.Second)), ask); err != nil {
		return fmt.Errorf("check key: %w", err)
	}
	return nil
}

// askPeer returns nil if the peer shows that none of the newest commits holds
// the key's signature, a *RecentSignatureError if one does, and another error
// if the peer cannot say.
func askPeer(ctx context.Context, deps Deps, host, chainID, name, address string) error {
	peer, err := deps.Chain(host)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	bounded, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	status, err := peer.Status(bounded)
	if err != nil {
		return fmt.Errorf("ask %s for its status: %w", host, err)
	}
	if got := status.NodeInfo.Network; got != chainID {
		return fmt.Errorf("ask %s: %w: it is on %q, the genesis is for %q", host, errWrongChain, got, chainID)
	}
	head := status.SyncInfo.LatestBlockHeight
	if status.SyncInfo.CatchingUp {
		return fmt.Errorf("ask %s: it is still catching up, at height %d", host, head)
	}
	for height := head; height > 0 && height > head-nodeconfig.GuardedCommits; height-- {
		signed, err := signedBy(ctx, peer, height, address)
		if err != nil {
			return fmt.Errorf("ask %s for commit %d: %w", host, height, err)
		}
		if signed {
			return &RecentSignatureError{Validator: name, ConsensusAddress: address, Signed: height, Height: head}
		}
	}
	return nil
}

// signedBy tells whether the commit of a height has a signature of the address;
// a vote for nil counts, since it too comes from a running process.
func signedBy(ctx context.Context, peer Chain, height int64, address string) (bool, error) {
	bounded, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	res, err := peer.Commit(bounded, &height)
	if err != nil {
		return false, err
	}
	if res.Commit == nil {
		return false, errors.New("the answer holds no commit")
	}
	for _, sig := range res.Commit.Signatures {
		if sig.ValidatorAddress.String() == address {
			return true, nil
		}
	}
	return false, nil
}
