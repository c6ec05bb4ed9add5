//go:build chain

package localnet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/localnet"
)

// The steps of a validator's life build on each other, so they share a network.
func TestNetwork(t *testing.T) {
	t.Parallel()
	n := localnet.Start(t, localnet.Options{})
	const joining = 4

	first := n.Height(0)
	n.WaitHeight(3, first+3)

	n.StartNode(joining)
	n.WaitSynced(joining)
	status, err := n.Status(t.Context(), joining)
	require.NoError(t, err)
	require.Zero(t, status.VotingPower, "a node that is not staked has no power")

	included := createValidator(t, n, joining)
	requireJoinedAt(t, n, joining, included+2)
	requireReady(t, n, joining)

	stopped := n.StopNode(joining, syscall.SIGTERM)
	require.True(t, stopped.Success(), "a node that is asked to end ends cleanly: %s", stopped)
	halfway := n.Height(0)
	n.WaitHeight(0, halfway+2)
	n.StartNode(joining)
	n.WaitSynced(joining)
	requireSigns(t, n, joining, n.Height(0))
}

func TestNetworksRunSideBySide(t *testing.T) {
	t.Parallel()
	opts := localnet.Options{Genesis: 1, Accounts: 1}
	one, two := localnet.Start(t, opts), localnet.Start(t, opts)
	require.NotEqual(t, one.RPC(0), two.RPC(0))
	require.NotEqual(t, one.ChainID, two.ChainID)
	require.NotEqual(t, one.Keys(0).Mnemonic, two.Keys(0).Mnemonic)
	one.WaitHeight(0, 3)
	two.WaitHeight(0, 3)
}

func TestKeyInUseIsNotStartedOnAnEmptyVolume(t *testing.T) {
	t.Parallel()
	n := localnet.Start(t, localnet.Options{Genesis: 2, Accounts: 3})
	// Node 2 gets the key of node 1, as from a volume that was lost or copied.
	key := filepath.Join(n.Node(2).Home, "config", "priv_validator_key.json")
	require.NoError(t, os.WriteFile(key, n.Keys(1).PrivValidatorKey, 0o600))
	n.WaitHeight(0, 5)

	n.StartNode(2)
	require.False(t, n.WaitExit(2).Success())
	log, err := os.ReadFile(n.LogPath(2))
	require.NoError(t, err)
	require.Contains(t, string(log), "refused to start validator-2: its consensus key "+n.Node(1).ConsensusAddress)
	n.WaitHeight(0, n.Height(0)+2)
}

// createValidator stakes node i through the chain's own command line, the slow
// but independent way, and returns the height of the transaction.
func createValidator(t *testing.T, n *localnet.Network, i int) int64 {
	t.Helper()
	n.CLI(i, n.Keys(i).Mnemonic+"\n", "keys", "add", "operator", "--recover", "--keyring-backend", "test")
	pubkey := n.CLI(i, "", "comet", "show-validator")
	file := filepath.Join(t.TempDir(), "validator.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"pubkey":%s,"amount":"100000000stake","moniker":"joining",
		"commission-rate":"0.1","commission-max-rate":"0.2","commission-max-change-rate":"0.01","min-self-delegation":"1"}`, pubkey), 0o600))
	out := n.CLI(i, "", "tx", "staking", "create-validator", file, "--from", "operator", "--keyring-backend", "test",
		"--chain-id", n.ChainID, "--gas", "300000", "--gas-prices", "0stake", "--yes", "--output", "json")
	var sent struct {
		Code   int    `json:"code"`
		Hash   string `json:"txhash"`
		RawLog string `json:"raw_log"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &sent), out)
	require.Zero(t, sent.Code, sent.RawLog)

	var included struct {
		Height int64 `json:"height,string"`
		Result struct {
			Code int    `json:"code"`
			Log  string `json:"log"`
		} `json:"tx_result"`
	}
	n.Eventually("the transaction is in a block", func(ctx context.Context) error {
		return n.Call(ctx, 0, "tx", url.Values{"hash": {"0x" + sent.Hash}}, &included)
	})
	require.Zero(t, included.Result.Code, included.Result.Log)
	return included.Height
}

// requireJoinedAt checks that node i enters the consensus set exactly at a
// height, and then signs.
func requireJoinedAt(t *testing.T, n *localnet.Network, i int, height int64) {
	t.Helper()
	n.WaitHeight(0, height)
	address := n.Node(i).ConsensusAddress
	before, err := n.Power(t.Context(), 0, height-1)
	require.NoError(t, err)
	require.NotContains(t, before, address, "not in the set at "+strconv.FormatInt(height-1, 10))
	after, err := n.Power(t.Context(), 0, height)
	require.NoError(t, err)
	require.Equal(t, int64(100), after[address])
	requireSigns(t, n, i, height)
}

// requireSigns waits until node i has signed a block from a height on.
func requireSigns(t *testing.T, n *localnet.Network, i int, from int64) {
	t.Helper()
	n.Eventually(fmt.Sprintf("node %d signs", i), func(ctx context.Context) error {
		head, err := n.Status(ctx, 0)
		if err != nil {
			return err
		}
		for height := from; height < head.Height; height++ {
			signers, err := n.Signers(ctx, 0, height)
			if err != nil {
				return err
			}
			if signers[n.Node(i).ConsensusAddress] {
				return nil
			}
		}
		return fmt.Errorf("no signature in blocks %d to %d", from, head.Height-1)
	})
}

func requireReady(t *testing.T, n *localnet.Network, i int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.REST(i)+"/readyz", nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
}
