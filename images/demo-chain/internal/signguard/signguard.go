// Package signguard keeps a consensus key from signing in two places.
//
// It guarantees that a node whose volume has never signed does not start while
// the chain's newest commits hold signatures of its key: those are made by
// another process, or were made by this one before its volume was lost. It is
// asked at every start of the process, but once the volume has signed it always
// agrees: the node's own signatures must not keep a restarted validator, or a
// halted chain, down.
//
// CometBFT's double_sign_check_height cannot do this for an empty volume: a
// node may leave block sync at height 1, with no block to look through, follow
// the chain by consensus gossip, and sign.
//
// It does not guarantee that no second process has the key: two that start
// within the same seconds both pass. One StatefulSet with one key per ordinal
// is what rules that out.
package signguard

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	cmtcfg "github.com/cometbft/cometbft/config"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
	rpchttp "github.com/cometbft/cometbft/rpc/client/http"
	coretypes "github.com/cometbft/cometbft/rpc/core/types"
	genutiltypes "github.com/cosmos/cosmos-sdk/x/genutil/types"
	"github.com/sethvargo/go-retry"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

const (
	// Commits is how many of the newest commits are searched.
	Commits = 20
	// rpcTimeout bounds each request to a peer.
	rpcTimeout = 2 * time.Second
	pollEvery  = time.Second
)

// Subject is the node that wants to start.
type Subject struct {
	Name string
	// Address is the consensus key's address, in upper case hex.
	Address string
	ChainID string
	// InGenesis is true if the key is one of the genesis validators'. The first
	// of them find nobody to ask, and must start.
	InGenesis bool
	// HasSigned is true if the node's own signing state has a signature.
	HasSigned bool
	// Hosts are the peers to ask, at the usual RPC port.
	Hosts []string
}

// Chain is the part of a peer's RPC that is read.
type Chain interface {
	Status(ctx context.Context) (*coretypes.ResultStatus, error)
	Commit(ctx context.Context, height *int64) (*coretypes.ResultCommit, error)
}

// Dial connects to the RPC of the node on a host.
func Dial(host string) (Chain, error) {
	url := fmt.Sprintf("http://%s:%d", host, nodeconfig.RPCPort)
	return rpchttp.NewWithTimeout(url, "/websocket", uint(rpcTimeout/time.Second))
}

// RecentSignatureError says that a key which is new to its volume signs, or
// signed moments ago, somewhere else.
type RecentSignatureError struct {
	Name, Address string
	// Signed is the newest height with a signature of the key, Height the chain's.
	Signed, Height int64
}

// Error says what was found and what to do.
func (e *RecentSignatureError) Error() string {
	return fmt.Sprintf("refused to start %s: its consensus key %s signed block %d (the chain is at %d), but this volume has never signed; "+
		"either another process uses the key and must be stopped, or the volume was lost: then it starts once %d blocks are without the key",
		e.Name, e.Address, e.Signed, e.Height, Commits)
}

// errWrongChain is final: asking again does not change what chain a peer is on.
var errWrongChain = errors.New("peer is on another chain")

// Check returns nil if the subject may start. Without an answer from any peer
// a genesis validator may, and any other node is asked about again until wait
// is over. Errors are *RecentSignatureError or say which peer answered what.
func Check(ctx context.Context, s Subject, wait time.Duration, dial func(host string) (Chain, error), log *slog.Logger) error {
	if s.HasSigned {
		return nil
	}
	var last error
	ask := func(ctx context.Context) error {
		for _, host := range s.Hosts {
			err := askPeer(ctx, s, host, dial)
			var recent *RecentSignatureError
			if err == nil || errors.As(err, &recent) || errors.Is(err, errWrongChain) {
				return err
			}
			last = err
		}
		if s.InGenesis {
			log.Info("no peer can say whether the key signs elsewhere: taking this for the network's first start", "validator", s.Name, "err", last)
			return nil
		}
		return retry.RetryableError(fmt.Errorf("no peer can say whether the key of %s signs elsewhere: %w", s.Name, last))
	}
	if err := retry.Do(ctx, retry.WithMaxDuration(wait, retry.NewConstant(pollEvery)), ask); err != nil {
		return fmt.Errorf("check key: %w", err)
	}
	return nil
}

// askPeer returns nil if the peer shows that none of the newest commits holds
// the key's signature, a *RecentSignatureError if one does, and another error
// if the peer cannot say.
func askPeer(ctx context.Context, s Subject, host string, dial func(string) (Chain, error)) error {
	peer, err := dial(host)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", host, err)
	}
	bounded, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	status, err := peer.Status(bounded)
	if err != nil {
		return fmt.Errorf("ask %s for its status: %w", host, err)
	}
	if got := status.NodeInfo.Network; got != s.ChainID {
		return fmt.Errorf("ask %s: %w: it is on %q, the genesis is for %q", host, errWrongChain, got, s.ChainID)
	}
	head := status.SyncInfo.LatestBlockHeight
	if status.SyncInfo.CatchingUp {
		return fmt.Errorf("ask %s: it is still catching up, at height %d", host, head)
	}
	for height := head; height > 0 && height > head-Commits; height-- {
		signed, err := signedBy(ctx, peer, height, s.Address)
		if err != nil {
			return fmt.Errorf("ask %s for commit %d: %w", host, height, err)
		}
		if signed {
			return &RecentSignatureError{Name: s.Name, Address: s.Address, Signed: height, Height: head}
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

// SubjectOf reads from a node's configuration who it is and whom it can ask.
func SubjectOf(cfg *cmtcfg.Config) (Subject, error) {
	signed, err := nodeconfig.HasSigned(cfg.PrivValidatorStateFile())
	if err != nil {
		return Subject{}, err
	}
	raw, err := os.ReadFile(cfg.PrivValidatorKeyFile())
	if err != nil {
		return Subject{}, fmt.Errorf("read consensus key: %w", err)
	}
	var key privval.FilePVKey
	if err := cmtjson.Unmarshal(raw, &key); err != nil || key.PubKey == nil {
		// The decoder's message could quote the key.
		return Subject{}, fmt.Errorf("read consensus key: %s is not a CometBFT priv_validator_key", cfg.PrivValidatorKeyFile())
	}
	nodeKey, err := p2p.LoadNodeKey(cfg.NodeKeyFile())
	if err != nil {
		return Subject{}, fmt.Errorf("read node key: %s is missing or not a CometBFT node key", cfg.NodeKeyFile())
	}
	raw, err = os.ReadFile(cfg.GenesisFile())
	if err != nil {
		return Subject{}, fmt.Errorf("read genesis: %w", err)
	}
	doc, err := genutiltypes.AppGenesisFromReader(bytes.NewReader(raw))
	if err != nil {
		return Subject{}, fmt.Errorf("read genesis: %w", err)
	}
	hosts, err := peerHosts(cfg.P2P.PersistentPeers, string(nodeKey.ID()))
	if err != nil {
		return Subject{}, err
	}
	return Subject{
		Name: cfg.Moniker, Address: key.PubKey.Address().String(), ChainID: doc.ChainID, HasSigned: signed, Hosts: hosts,
		// Genesis validators are in the genesis with their base64 public keys,
		// in a signed transaction or as they are.
		InGenesis: bytes.Contains(raw, []byte(base64.StdEncoding.EncodeToString(key.PubKey.Bytes()))),
	}, nil
}

func peerHosts(list, ownID string) ([]string, error) {
	var hosts []string
	for peer := range strings.SplitSeq(list, ",") {
		if peer = strings.TrimSpace(peer); peer == "" {
			continue
		}
		id, addr, ok := strings.Cut(peer, "@")
		host, _, err := net.SplitHostPort(addr)
		if !ok || err != nil {
			return nil, fmt.Errorf("read persistent_peers: %q is not id@host:port", peer)
		}
		if id != ownID {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}
