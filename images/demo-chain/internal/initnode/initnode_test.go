package initnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cometbft/cometbft/crypto/ed25519"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

const testChain = "test-1"

// pod is a pod's view of its volumes, and the world around it.
type pod struct {
	cfg     Config
	key     ed25519.PrivKey
	unknown map[string]bool // hosts that do not resolve
}

func newPod(t *testing.T, ordinal int) *pod {
	t.Helper()
	dir := t.TempDir()
	p := &pod{
		key: ed25519.GenPrivKeyFromSecret([]byte(fmt.Sprint("key", ordinal))), unknown: map[string]bool{},
		cfg: Config{
			Name: fmt.Sprintf("validator-%d", ordinal), PodIP: "10.0.0.9", Home: filepath.Join(dir, "data"),
			SecretsDir: filepath.Join(dir, "secrets"), KeysDir: filepath.Join(dir, "keys"), GenesisDir: filepath.Join(dir, "genesis"),
			BlockTime: time.Second, MinGasPrices: "0stake", Wait: time.Second, Settle: 50 * time.Millisecond,
		},
	}
	for _, d := range []string{p.cfg.SecretsDir, p.cfg.KeysDir, p.cfg.GenesisDir} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	p.putKey(t, p.key)
	nodeKey, err := cmtjson.Marshal(p2p.NodeKey{PrivKey: nodeKeyOf(ordinal)})
	require.NoError(t, err)
	p.put(t, p.cfg.SecretsDir, "node_key.json", nodeKey)
	p.put(t, p.cfg.GenesisDir, "genesis.json", []byte(`{"chain_id":"`+testChain+`","genesis_time":"2025-01-01T00:00:00Z","app_state":{}}`))
	var peers []string
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("%s@validator-%d.validator:26656", p2p.PubKeyToID(nodeKeyOf(i).PubKey()), i))
	}
	p.put(t, p.cfg.GenesisDir, "persistent_peers", []byte(strings.Join(peers, ",")+"\n"))
	return p
}

func nodeKeyOf(ordinal int) ed25519.PrivKey {
	return ed25519.GenPrivKeyFromSecret([]byte(fmt.Sprint("node", ordinal)))
}

func (p *pod) putKey(t *testing.T, key ed25519.PrivKey) {
	t.Helper()
	raw, err := cmtjson.Marshal(privval.FilePVKey{Address: key.PubKey().Address(), PubKey: key.PubKey(), PrivKey: key})
	require.NoError(t, err)
	p.put(t, p.cfg.SecretsDir, "priv_validator_key.json", raw)
}

func (p *pod) put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
}

func (p *pod) putState(t *testing.T, height int64) {
	t.Helper()
	raw, err := cmtjson.Marshal(privval.FilePVLastSignState{Height: height})
	require.NoError(t, err)
	p.put(t, filepath.Join(p.cfg.Home, "data"), "priv_validator_state.json", raw)
}

func (p *pod) run(t *testing.T) error {
	t.Helper()
	return Run(t.Context(), p.cfg, Deps{
		Log: slog.New(slog.DiscardHandler),
		LookupHost: func(_ context.Context, host string) ([]string, error) {
			if p.unknown[host] {
				return nil, errors.New("no such host")
			}
			return []string{"10.0.0.1"}, nil
		},
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	other := ed25519.GenPrivKeyFromSecret([]byte("other"))
	cases := map[string]struct {
		ordinal int
		given   func(t *testing.T, p *pod)
		err     string // empty: the node may start
	}{
		"a genesis validator starts when names resolve": {0, func(*testing.T, *pod) {}, ""},
		"a genesis validator starts when no name resolves": {0, func(_ *testing.T, p *pod) {
			p.unknown = map[string]bool{"validator-1.validator": true, "validator-2.validator": true}
		}, ""},
		"a later node starts when names resolve": {7, func(*testing.T, *pod) {}, ""},
		"a later node does not start when no name resolves": {7, func(_ *testing.T, p *pod) {
			p.unknown = map[string]bool{"validator-0.validator": true, "validator-1.validator": true, "validator-2.validator": true}
		}, "wait for peers: none of validator-0.validator, validator-1.validator, validator-2.validator resolved"},
		"a later node does not wait for ever for one peer's name": {7, func(_ *testing.T, p *pod) {
			p.unknown = map[string]bool{"validator-1.validator": true}
		}, ""},
		"a validator comes back with its volume": {2, func(t *testing.T, p *pod) {
			require.NoError(t, p.run(t))
			p.putState(t, 50)
		}, ""},
		"a missing Secret is named": {7, func(t *testing.T, p *pod) {
			require.NoError(t, os.Remove(filepath.Join(p.cfg.SecretsDir, "priv_validator_key.json")))
		}, "no key for validator-7: Secret validator-7-keys does not exist or has no priv_validator_key.json"},
		"a malformed key is named and not quoted": {7, func(t *testing.T, p *pod) {
			p.put(t, p.cfg.SecretsDir, "priv_validator_key.json", []byte(`{"priv_key":"sesame"}`))
		}, "bad key for validator-7: priv_validator_key.json in Secret validator-7-keys is malformed: not a CometBFT priv_validator_key"},
		"a key whose halves do not match is refused": {7, func(t *testing.T, p *pod) {
			raw, err := cmtjson.Marshal(privval.FilePVKey{Address: other.PubKey().Address(), PubKey: other.PubKey(), PrivKey: p.key})
			require.NoError(t, err)
			p.put(t, p.cfg.SecretsDir, "priv_validator_key.json", raw)
		}, "do not belong together"},
		"a malformed node key is refused": {7, func(t *testing.T, p *pod) {
			p.put(t, p.cfg.SecretsDir, "node_key.json", []byte(`{}`))
		}, "not a CometBFT node key"},
		"a volume of another key is refused": {2, func(t *testing.T, p *pod) {
			require.NoError(t, p.run(t))
			p.putKey(t, other)
		}, "the volume of validator-2 belongs to consensus key"},
		"a volume of another network is refused": {2, func(t *testing.T, p *pod) {
			require.NoError(t, p.run(t))
			p.put(t, p.cfg.GenesisDir, "genesis.json", []byte(`{"chain_id":"test-2","app_state":{}}`))
		}, "belongs to another network"},
		"a volume without its signing state is refused": {2, func(t *testing.T, p *pod) {
			require.NoError(t, p.run(t))
			require.NoError(t, os.Remove(filepath.Join(p.cfg.Home, "data", "priv_validator_state.json")))
		}, "signing state of validator-2 is lost"},
		"an unreadable signing state is refused": {2, func(t *testing.T, p *pod) {
			p.put(t, filepath.Join(p.cfg.Home, "data"), "priv_validator_state.json", []byte("{"))
		}, "without it the key must not sign"},
		"a volume that signed with an unknown key is refused": {2, func(t *testing.T, p *pod) {
			p.putState(t, 3)
		}, "has signed with an unknown key before"},
		"a missing name is asked for": {2, func(_ *testing.T, p *pod) { p.cfg.Name = "" }, "give --name"},
		"a missing genesis is named": {2, func(t *testing.T, p *pod) {
			require.NoError(t, os.Remove(filepath.Join(p.cfg.GenesisDir, "genesis.json")))
		}, "is the ConfigMap chain-genesis mounted?"},
		"a malformed list of peers is named": {2, func(t *testing.T, p *pod) {
			p.put(t, p.cfg.GenesisDir, "persistent_peers", []byte("validator-0.validator"))
		}, `"validator-0.validator" is not id@host:port`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, tc.ordinal)
			tc.given(t, p)
			err := p.run(t)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.NotContains(t, err.Error(), "sesame")
				return
			}
			require.NoError(t, err)
			require.NoError(t, p.run(t), "a second run changes nothing")
		})
	}
}

func TestRunPreparesTheVolume(t *testing.T) {
	t.Parallel()
	p := newPod(t, 1)
	require.NoError(t, p.run(t))

	config, err := os.ReadFile(filepath.Join(p.cfg.Home, "config", "config.toml"))
	require.NoError(t, err)
	own := string(p2p.PubKeyToID(nodeKeyOf(1).PubKey()))
	require.NotContains(t, string(config), own, "a node is not its own peer")
	for _, want := range []string{
		"validator-0.validator:26656", "validator-2.validator:26656", `external_address = "10.0.0.9:26656"`,
		`timeout_commit = "1s"`, `flush_throttle_timeout = "10ms"`, `peer_gossip_sleep_duration = "10ms"`,
		`priv_validator_key_file = "` + p.cfg.KeysDir, `prometheus = true`, "addr_book_strict = false",
	} {
		require.Contains(t, string(config), want)
	}
	_, err = os.Stat(filepath.Join(p.cfg.Home, "config", "priv_validator_key.json"))
	require.ErrorIs(t, err, os.ErrNotExist, "the key is not copied to the volume")
	for _, name := range []string{"priv_validator_key.json", "node_key.json"} {
		given, err := os.ReadFile(filepath.Join(p.cfg.SecretsDir, name))
		require.NoError(t, err)
		kept, err := os.ReadFile(filepath.Join(p.cfg.KeysDir, name))
		require.NoError(t, err)
		require.Equal(t, given, kept)
	}

	var id nodeconfig.Identity
	raw, err := os.ReadFile(filepath.Join(p.cfg.Home, "data", "identity.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &id))
	require.Equal(t, p.key.PubKey().Address().String(), id.ConsensusAddress)
	signed, err := nodeconfig.HasSigned(filepath.Join(p.cfg.Home, "data", "priv_validator_state.json"))
	require.NoError(t, err)
	require.False(t, signed)
}
