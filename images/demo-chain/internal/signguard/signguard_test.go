package signguard

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	cmtcfg "github.com/cometbft/cometbft/config"
	"github.com/cometbft/cometbft/crypto/ed25519"
	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
	coretypes "github.com/cometbft/cometbft/rpc/core/types"
	cmttypes "github.com/cometbft/cometbft/types"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

const testChain = "test-1"

var (
	ours   = ed25519.GenPrivKeyFromSecret([]byte("ours"))
	theirs = ed25519.GenPrivKeyFromSecret([]byte("theirs"))
)

// fakeChain is a peer's view: its head, and who signed which heights.
type fakeChain struct {
	id         string
	head       int64
	catchingUp bool
	signers    map[int64]ed25519.PrivKey
	flag       cmttypes.BlockIDFlag
	noCommits  bool
}

func (f fakeChain) Status(context.Context) (*coretypes.ResultStatus, error) {
	res := &coretypes.ResultStatus{NodeInfo: p2p.DefaultNodeInfo{Network: f.id}}
	res.SyncInfo.LatestBlockHeight = f.head
	res.SyncInfo.CatchingUp = f.catchingUp
	return res, nil
}

func (f fakeChain) Commit(_ context.Context, height *int64) (*coretypes.ResultCommit, error) {
	if f.noCommits {
		return &coretypes.ResultCommit{}, nil
	}
	commit := &cmttypes.Commit{Height: *height, Signatures: []cmttypes.CommitSig{{BlockIDFlag: cmttypes.BlockIDFlagAbsent}}}
	if key, ok := f.signers[*height]; ok {
		commit.Signatures = append(commit.Signatures, cmttypes.CommitSig{BlockIDFlag: f.flag, ValidatorAddress: key.PubKey().Address()})
	}
	return &coretypes.ResultCommit{SignedHeader: cmttypes.SignedHeader{Commit: commit}}, nil
}

func TestCheck(t *testing.T) {
	t.Parallel()
	signed := func(height int64, key ed25519.PrivKey) *fakeChain {
		return &fakeChain{id: testChain, head: 50, flag: cmttypes.BlockIDFlagCommit, signers: map[int64]ed25519.PrivKey{height: key}}
	}
	nilVote := signed(50, ours)
	nilVote.flag = cmttypes.BlockIDFlagNil
	genesis := func(s *Subject) { s.InGenesis = true }
	cases := map[string]struct {
		given func(*Subject)
		peers map[string]*fakeChain // by host; others refuse the connection
		err   string                // empty: may start
	}{
		"a key that the chain does not know may start":               {nil, map[string]*fakeChain{"a": signed(50, theirs)}, ""},
		"a key that signed the newest block is refused":              {nil, map[string]*fakeChain{"a": signed(50, ours)}, "signed block 50 (the chain is at 50)"},
		"a key that signed 20 blocks ago is refused":                 {nil, map[string]*fakeChain{"a": signed(31, ours)}, "signed block 31"},
		"a key that signed 21 blocks ago may start":                  {nil, map[string]*fakeChain{"a": signed(30, ours)}, ""},
		"a vote for nil is a signature":                              {nil, map[string]*fakeChain{"a": nilVote}, "signed block 50"},
		"a genesis validator's key in use is refused":                {genesis, map[string]*fakeChain{"a": signed(49, ours)}, "signed block 49"},
		"the second peer is asked if the first does not answer":      {genesis, map[string]*fakeChain{"b": signed(49, ours)}, "signed block 49"},
		"a genesis validator that nobody answers may start":          {genesis, nil, ""},
		"another node that nobody answers may not start":             {nil, nil, "no peer can say whether the key of validator-7 signs elsewhere: connect to b: connection refused"},
		"a peer that catches up cannot say":                          {nil, map[string]*fakeChain{"b": {id: testChain, head: 9, catchingUp: true}}, "ask b: it is still catching up, at height 9"},
		"a peer without commits cannot say":                          {nil, map[string]*fakeChain{"b": {id: testChain, head: 9, noCommits: true}}, "the answer holds no commit"},
		"a peer of another chain is an error, for genesis nodes too": {genesis, map[string]*fakeChain{"a": {id: "other-1", head: 9}}, `it is on "other-1", the genesis is for "test-1"`},
		"a chain without blocks has no signatures":                   {nil, map[string]*fakeChain{"a": {id: testChain}}, ""},
		"own signatures don't hold up a volume that has signed":      {func(s *Subject) { s.HasSigned = true }, map[string]*fakeChain{"a": signed(50, ours)}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Subject{Name: "validator-7", Address: ours.PubKey().Address().String(), ChainID: testChain, Hosts: []string{"a", "b"}}
			if tc.given != nil {
				tc.given(&s)
			}
			dial := func(host string) (Chain, error) {
				if peer, ok := tc.peers[host]; ok {
					return peer, nil
				}
				return nil, errors.New("connection refused")
			}
			err := Check(t.Context(), s, 10*time.Millisecond, dial, slog.New(slog.DiscardHandler))
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestSubjectOf(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	nodeKey := p2p.NodeKey{PrivKey: theirs}
	require.NoError(t, nodeconfig.Write(home, nodeconfig.Settings{
		Moniker: "validator-1", Listen: "127.0.0.1", BlockTime: time.Second, MinGasPrices: "0stake", ChainID: testChain,
	}))
	put := func(name string, content any) {
		raw, err := cmtjson.Marshal(content)
		require.NoError(t, err)
		require.NoError(t, nodeconfig.WriteFile(filepath.Join(home, name), raw))
	}
	put("config/priv_validator_key.json", privval.FilePVKey{Address: ours.PubKey().Address(), PubKey: ours.PubKey(), PrivKey: ours})
	put("config/node_key.json", nodeKey)
	genesis := func(state string) {
		raw := fmt.Appendf(nil, `{"chain_id":%q,"app_state":%s}`, testChain, state)
		require.NoError(t, nodeconfig.WriteFile(filepath.Join(home, "config/genesis.json"), raw))
	}
	genesis(fmt.Sprintf(`{"pubkey":%q}`, base64.StdEncoding.EncodeToString(ours.PubKey().Bytes())))
	cfg := cmtcfg.DefaultConfig().SetRoot(home)
	cfg.Moniker = "validator-1"
	cfg.P2P.PersistentPeers = string(nodeKey.ID()) + "@own.host:26656, 0011@other.host:26656"

	s, err := SubjectOf(cfg)
	require.NoError(t, err)
	require.Equal(t, Subject{
		Name: "validator-1", Address: ours.PubKey().Address().String(), ChainID: testChain, InGenesis: true, Hosts: []string{"other.host"},
	}, s)

	put("data/priv_validator_state.json", privval.FilePVLastSignState{Height: 3})
	genesis("{}")
	s, err = SubjectOf(cfg)
	require.NoError(t, err)
	require.True(t, s.HasSigned)
	require.False(t, s.InGenesis)

	require.NoError(t, nodeconfig.WriteFile(filepath.Join(home, "config/priv_validator_key.json"), []byte(`{"priv_key":"sesame"}`)))
	_, err = SubjectOf(cfg)
	require.ErrorContains(t, err, "is not a CometBFT priv_validator_key")
	require.NotContains(t, err.Error(), "sesame")
}
