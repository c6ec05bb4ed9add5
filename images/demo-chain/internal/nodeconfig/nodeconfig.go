// Package nodeconfig writes the configuration files of one node and reads what
// a node has left on its volume.
//
// The settings are those of a small network on one machine or cluster: short
// timeouts, addresses that are private and change. They are not those of a
// public network, which must not trust its neighbours' addresses.
package nodeconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	cmtcfg "github.com/cometbft/cometbft/config"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/privval"
	serverconfig "github.com/cosmos/cosmos-sdk/server/config"
)

// The ports of a node, on every address it is given.
const (
	P2PPort        = 26656
	RPCPort        = 26657
	PrometheusPort = 26660
	RESTPort       = 1317
	GRPCPort       = 9090
)

// Settings are what differs between nodes and networks.
type Settings struct {
	Moniker string
	// Listen is the address all ports are opened on, e.g. 0.0.0.0 or 127.3.2.1.
	Listen string
	// External is the address other nodes reach this one at; empty if Listen is it.
	External string
	// PersistentPeers are id@host:port of nodes to stay connected with.
	PersistentPeers []string
	// BlockTime is the pause after a commit (CometBFT's timeout_commit); a block
	// takes some 50 ms longer.
	BlockTime time.Duration
	// MinGasPrices is the lowest price the node accepts, e.g. 0stake.
	MinGasPrices string
	// KeyFile and NodeKeyFile are absolute paths; empty for the usual places
	// below the home.
	KeyFile, NodeKeyFile string
	// ChainID goes to client.toml, for commands run with this home.
	ChainID string
}

// Write puts config.toml, app.toml and client.toml into home/config and makes
// home/data. Existing files are overwritten: settings come from the caller,
// never from an old volume.
func Write(home string, s Settings) error {
	for _, dir := range []string{filepath.Join(home, "config"), filepath.Join(home, "data")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make node folder: %w", err)
		}
	}
	comet := cometConfig(s)
	if err := comet.ValidateBasic(); err != nil {
		return fmt.Errorf("check config.toml: %w", err)
	}
	application := appConfig(s)
	if err := application.ValidateBasic(); err != nil {
		return fmt.Errorf("check app.toml: %w", err)
	}
	// Both libraries exit or panic when they cannot write, so find that out first.
	for _, name := range []string{"config.toml", "app.toml"} {
		if err := WriteFile(filepath.Join(home, "config", name), nil); err != nil {
			return err
		}
	}
	cmtcfg.WriteConfigFile(filepath.Join(home, "config", "config.toml"), comet)
	serverconfig.SetConfigTemplate(serverconfig.DefaultConfigTemplate)
	serverconfig.WriteConfigFile(filepath.Join(home, "config", "app.toml"), application)
	client := fmt.Sprintf("chain-id = %q\nkeyring-backend = \"test\"\noutput = \"json\"\nnode = \"tcp://%s:%d\"\nbroadcast-mode = \"sync\"\n",
		s.ChainID, s.clientHost(), RPCPort)
	return WriteFile(filepath.Join(home, "config", "client.toml"), []byte(client))
}

func (s Settings) clientHost() string {
	if s.Listen == "0.0.0.0" {
		return "127.0.0.1"
	}
	return s.Listen
}

func cometConfig(s Settings) *cmtcfg.Config {
	c := cmtcfg.DefaultConfig()
	c.Moniker = s.Moniker
	if s.KeyFile != "" {
		c.PrivValidatorKey = s.KeyFile
	}
	if s.NodeKeyFile != "" {
		c.NodeKey = s.NodeKeyFile
	}

	c.RPC.ListenAddress = fmt.Sprintf("tcp://%s:%d", s.Listen, RPCPort)
	c.RPC.PprofListenAddress = ""

	c.P2P.ListenAddress = fmt.Sprintf("tcp://%s:%d", s.Listen, P2PPort)
	if s.External != "" {
		c.P2P.ExternalAddress = fmt.Sprintf("%s:%d", s.External, P2PPort)
	}
	c.P2P.PersistentPeers = strings.Join(s.PersistentPeers, ",")
	// Pod and loopback addresses are private, and pods may share one host's.
	c.P2P.AddrBookStrict = false
	c.P2P.AllowDuplicateIP = true
	// The default of 100 ms costs a quarter of a second per block.
	c.P2P.FlushThrottleTimeout = 10 * time.Millisecond

	c.Consensus.TimeoutPropose = time.Second
	c.Consensus.TimeoutProposeDelta = 200 * time.Millisecond
	c.Consensus.TimeoutPrevote = 200 * time.Millisecond
	c.Consensus.TimeoutPrevoteDelta = 100 * time.Millisecond
	c.Consensus.TimeoutPrecommit = 200 * time.Millisecond
	c.Consensus.TimeoutPrecommitDelta = 100 * time.Millisecond
	c.Consensus.TimeoutCommit = s.BlockTime
	c.Consensus.PeerGossipSleepDuration = 10 * time.Millisecond
	c.Consensus.PeerQueryMaj23SleepDuration = 500 * time.Millisecond

	c.Instrumentation.Prometheus = true
	c.Instrumentation.PrometheusListenAddr = fmt.Sprintf("%s:%d", s.Listen, PrometheusPort)
	return c
}

func appConfig(s Settings) *serverconfig.Config {
	c := serverconfig.DefaultConfig()
	c.MinGasPrices = s.MinGasPrices
	// The default cache may grow to hundreds of megabytes; this state is tiny.
	c.IAVLCacheSize = 20_000
	c.API.Enable = true
	c.API.Address = fmt.Sprintf("tcp://%s:%d", s.Listen, RESTPort)
	c.GRPC.Address = fmt.Sprintf("%s:%d", s.Listen, GRPCPort)
	c.GRPCWeb.Enable = false
	return c
}

// WriteFile writes a file with mode 0600 so that readers see the old or the
// new content, never a part.
func WriteFile(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// HasSigned tells whether the node with this priv_validator_state.json has
// signed anything yet. A missing file means no. An unreadable one is an error,
// since guessing "no" could lead to a double signature.
func HasSigned(stateFile string) (bool, error) {
	raw, err := os.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read signing state: %w", err)
	}
	var state privval.FilePVLastSignState
	if err := cmtjson.Unmarshal(raw, &state); err != nil {
		return false, fmt.Errorf("read signing state %s: %w; without it the key must not sign: restore the volume, or give the validator a new key", stateFile, err)
	}
	return state.Height > 0, nil
}

// EmptySigningState is the priv_validator_state.json of a key that has never signed.
func EmptySigningState() ([]byte, error) {
	raw, err := cmtjson.MarshalIndent(privval.FilePVLastSignState{}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode signing state: %w", err)
	}
	return raw, nil
}

// Identity is what a volume belongs to. It is kept beside the signing state,
// which is only right for this key on this chain.
type Identity struct {
	// ConsensusAddress is the upper case hex of the consensus key's address.
	ConsensusAddress string `json:"consensus_address"`
	// GenesisSHA256 is the hex digest of genesis.json.
	GenesisSHA256 string `json:"genesis_sha256"`
}

func identityFile(home string) string { return filepath.Join(home, "data", "identity.json") }

// ReadIdentity returns what the volume belongs to, and false if it is new.
func ReadIdentity(home string) (Identity, bool, error) {
	raw, err := os.ReadFile(identityFile(home))
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("read volume identity: %w", err)
	}
	var id Identity
	if err := json.Unmarshal(raw, &id); err != nil {
		return Identity{}, false, fmt.Errorf("read volume identity %s: %w", identityFile(home), err)
	}
	return id, true, nil
}

// WriteIdentity records what the volume belongs to; home/data must exist.
func WriteIdentity(home string, id Identity) error {
	raw, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encode volume identity: %w", err)
	}
	return WriteFile(identityFile(home), raw)
}
