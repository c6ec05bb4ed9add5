// Package initnode prepares a node's volume before the node starts: it is the
// init container of a demo chain pod.
//
// It guarantees that a node only ever starts with the consensus key that its
// volume's signing state belongs to, on the chain its blocks belong to, and with
// configuration that comes from the pod and not from an old volume.
//
// It does not look for other users of the key: `start` does (package signguard),
// since a container may start again without its init containers. The keys are
// never copied to the volume, only to memory.
package initnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	genutiltypes "github.com/cosmos/cosmos-sdk/x/genutil/types"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

// Config is where everything is and how the node is to run.
type Config struct {
	// Name is the pod's name, e.g. validator-2; the Secret is Name + "-keys".
	Name string
	// PodIP is the address other nodes reach this one at.
	PodIP string
	// Home is the node's home on its volume.
	Home string
	// SecretsDir holds this node's priv_validator_key.json and node_key.json, as
	// the kubelet mounts them, and KeysDir, in memory, gets copies for the node:
	// the kubelet empties the mount of a running container when any of the
	// volume's Secrets changes.
	SecretsDir, KeysDir string
	// GenesisDir holds genesis.json and persistent_peers.
	GenesisDir string
	// BlockTime and MinGasPrices are the node's settings of these names.
	BlockTime    time.Duration
	MinGasPrices string
	// Wait bounds the wait for the first peer's name to resolve.
	Wait time.Duration
	// Settle is how long names that do not resolve yet are waited for once
	// another one has: CometBFT looks names up only once, at its start.
	Settle time.Duration
}

// Deps are the outside world, replaced in tests.
type Deps struct {
	// LookupHost resolves a peer's name.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	Log        *slog.Logger
}

// Run prepares the volume. After an error the node must not be started.
func Run(ctx context.Context, cfg Config, deps Deps) error {
	if deps.LookupHost == nil {
		deps.LookupHost = net.DefaultResolver.LookupHost
	}
	if cfg.Name == "" {
		return errors.New("check options: the pod's name is missing: give --name")
	}
	keys, err := loadKeys(cfg.SecretsDir, cfg.Name)
	if err != nil {
		return err
	}
	chain, err := loadGenesis(cfg.GenesisDir, keys.nodeID)
	if err != nil {
		return err
	}
	volume := nodeconfig.Identity{ConsensusAddress: keys.consensusAddress, GenesisSHA256: chain.digest}
	signed, err := checkVolume(cfg.Home, cfg.Name, volume)
	if err != nil {
		return err
	}
	err = nodeconfig.Write(cfg.Home, nodeconfig.Settings{
		Moniker: cfg.Name, Listen: "0.0.0.0", External: cfg.PodIP, PersistentPeers: chain.peers,
		BlockTime: cfg.BlockTime, MinGasPrices: cfg.MinGasPrices, ChainID: chain.id,
		KeyFile: filepath.Join(cfg.KeysDir, consensusKeyName), NodeKeyFile: filepath.Join(cfg.KeysDir, nodeKeyName),
	})
	if err != nil {
		return err
	}
	if err := nodeconfig.WriteFile(filepath.Join(cfg.Home, "config", "genesis.json"), chain.genesis); err != nil {
		return err
	}
	resolved, err := waitForPeers(ctx, cfg, deps, chain)
	if err != nil {
		return err
	}
	if err := keys.copyTo(cfg.KeysDir); err != nil {
		return err
	}
	if err := claimVolume(cfg.Home, volume); err != nil {
		return err
	}
	deps.Log.Info("node prepared", "validator", cfg.Name, "chain", chain.id, "consensus_address", keys.consensusAddress,
		"genesis_validator", chain.inGenesis, "has_signed", signed, "peers", len(resolved))
	return nil
}

// genesis is the network's public side as one node sees it.
type genesis struct {
	id      string
	genesis []byte
	digest  string
	// peers are id@host:port of the nodes to connect with, without the node itself.
	peers []string
	// hosts are the peers' hosts, in the same order.
	hosts []string
	// inGenesis is true if the node is one that the network starts with.
	inGenesis bool
}

func loadGenesis(dir, ownID string) (genesis, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "genesis.json"))
	if err != nil {
		return genesis{}, fmt.Errorf("read genesis: %w; is the ConfigMap chain-genesis mounted?", err)
	}
	doc, err := genutiltypes.AppGenesisFromFile(filepath.Join(dir, "genesis.json"))
	if err != nil {
		return genesis{}, fmt.Errorf("read genesis: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(dir, "persistent_peers"))
	if err != nil {
		return genesis{}, fmt.Errorf("read peers: %w; is the ConfigMap chain-genesis mounted?", err)
	}
	sum := sha256.Sum256(raw)
	g := genesis{id: doc.ChainID, genesis: raw, digest: hex.EncodeToString(sum[:])}
	for peer := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(peer), "@")
		host, _, err := net.SplitHostPort(addr)
		if !ok || err != nil {
			return genesis{}, fmt.Errorf("read peers: %q is not id@host:port", peer)
		}
		if id == ownID {
			g.inGenesis = true
			continue
		}
		g.peers = append(g.peers, strings.TrimSpace(peer))
		g.hosts = append(g.hosts, host)
	}
	slices.Sort(g.hosts)
	return g, nil
}

// checkVolume refuses a volume that belongs to another key or chain, and tells
// whether the key has signed with this volume's signing state.
func checkVolume(home, name string, want nodeconfig.Identity) (signed bool, err error) {
	stateFile := filepath.Join(home, "data", "priv_validator_state.json")
	signed, err = nodeconfig.HasSigned(stateFile)
	if err != nil {
		return false, err
	}
	have, claimed, err := nodeconfig.ReadIdentity(home)
	if err != nil {
		return false, err
	}
	switch {
	case !claimed && signed:
		return false, fmt.Errorf("check volume: %s has signed with an unknown key before; use an empty volume", name)
	case !claimed:
		return false, nil
	case have.ConsensusAddress != want.ConsensusAddress:
		return false, fmt.Errorf("check volume: the volume of %s belongs to consensus key %s, but Secret %s-keys has key %s; "+
			"restore the Secret, or delete the volume's claim if the old key is retired", name, have.ConsensusAddress, name, want.ConsensusAddress)
	case have.GenesisSHA256 != want.GenesisSHA256:
		return false, fmt.Errorf("check volume: the volume of %s belongs to another network (genesis %.12s, not %.12s); "+
			"delete its claim to join the new network", name, have.GenesisSHA256, want.GenesisSHA256)
	}
	if _, err := os.Stat(stateFile); err != nil {
		return false, fmt.Errorf("check volume: signing state of %s is lost: %w; restore the volume, or give the validator a new key", name, err)
	}
	return signed, nil
}

// claimVolume records the volume's owner and makes its signing state. The
// state goes first: a claimed volume without one counts as damaged.
func claimVolume(home string, id nodeconfig.Identity) error {
	if _, claimed, err := nodeconfig.ReadIdentity(home); claimed || err != nil {
		return err
	}
	stateFile := filepath.Join(home, "data", "priv_validator_state.json")
	if _, err := os.Stat(stateFile); errors.Is(err, fs.ErrNotExist) {
		state, err := nodeconfig.EmptySigningState()
		if err != nil {
			return err
		}
		if err := nodeconfig.WriteFile(stateFile, state); err != nil {
			return err
		}
	}
	return nodeconfig.WriteIdentity(home, id)
}
