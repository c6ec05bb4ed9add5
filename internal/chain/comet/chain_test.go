//go:build chain

package comet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/test/localnet"
)

func TestARealNode(t *testing.T) {
	t.Parallel()
	n := localnet.Start(t, localnet.Options{Genesis: 4, Accounts: 5})
	e := chain.Endpoint(n.RPC(0))
	c := comet.New()
	ctx := t.Context()
	n.WaitHeight(0, 8)

	t.Run("it says who it is and where it stands", func(t *testing.T) {
		node, err := c.Node(ctx, e)
		require.NoError(t, err)
		require.Equal(t, n.ChainID, node.ChainID)
		require.Equal(t, n.Node(0).NodeID, node.NodeID)
		require.Equal(t, n.Node(0).ConsensusAddress, node.Address)
		require.EqualValues(t, 100, node.VotingPower)
		require.Equal(t, 3, node.Peers)
		require.GreaterOrEqual(t, node.Height, int64(8))
		require.WithinDuration(t, time.Now(), node.BlockTime, time.Minute)
		require.Len(t, node.AppHash, 64)
		require.True(t, strings.HasPrefix(node.Version, "0.38."), node.Version)
	})

	t.Run("the set at a height, and at the latest", func(t *testing.T) {
		for _, height := range []int64{1, 5, 0} {
			s, err := c.Set(ctx, e, height)
			require.NoError(t, err)
			if height > 0 {
				require.Equal(t, height, s.Height)
			}
			require.Len(t, s.Members, 4)
			require.EqualValues(t, 400, s.Power())
			m, ok := s.Find(n.Node(2).ConsensusAddress)
			require.True(t, ok)
			require.Len(t, m.PubKey, 32)
		}
	})

	t.Run("commits match the chain's own view, absent ones by their index", func(t *testing.T) {
		n.StopNode(2, syscall.SIGTERM)
		stopped := n.Height(0)
		n.WaitHeight(0, stopped+6)
		commits, err := c.Commits(ctx, e, stopped-2, stopped+4)
		require.NoError(t, err)
		require.Len(t, commits, 7)
		for _, got := range commits {
			want, err := n.Signers(ctx, 0, got.Height)
			require.NoError(t, err)
			require.Len(t, got.Votes, 4, "absent ones are there by their address")
			for i := range 4 {
				address := n.Node(i).ConsensusAddress
				require.Equal(t, want[address], got.Signed(address), "height %d, validator %d: %v", got.Height, i, got.Votes)
			}
		}
		require.Equal(t, chain.Absent, commits[6].Votes[n.Node(2).ConsensusAddress])
		n.StartNode(2)
		n.WaitSynced(2)
	})

	t.Run("heights that aren't there", func(t *testing.T) {
		node, err := c.Status(ctx, e)
		require.NoError(t, err)
		_, err = c.Set(ctx, e, node.Height+1000)
		require.ErrorIs(t, err, comet.ErrFutureHeight)
		require.True(t, fault.Is(err, fault.Transient))
		_, err = c.Commits(ctx, e, node.Height, node.Height+1000)
		require.ErrorIs(t, err, comet.ErrFutureHeight)
		require.Eventually(t, func() bool {
			// The commit of the latest block, whichever that is by then.
			node, err := c.Status(ctx, e)
			require.NoError(t, err)
			_, err = c.Commits(ctx, e, node.Height, node.Height)
			return err != nil && strings.Contains(err.Error(), "isn't final")
		}, 30*time.Second, 10*time.Millisecond)
	})

	t.Run("blocks, results and parameters", func(t *testing.T) {
		b, err := c.Block(ctx, e, 3)
		require.NoError(t, err)
		require.Equal(t, n.ChainID, b.ChainID)
		r, err := c.BlockResults(ctx, e, 3)
		require.NoError(t, err)
		require.Len(t, r.Txs, len(b.Txs))
		p, err := c.ConsensusParams(ctx, e, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"ed25519"}, p.KeyTypes)
		require.Positive(t, p.EvidenceAge)
		_, err = c.Tx(ctx, e, strings.Repeat("AB", 32))
		require.ErrorIs(t, err, comet.ErrNoTx)
	})

	t.Run("a query the application refuses is a result", func(t *testing.T) {
		q, err := c.ABCIQuery(ctx, e, "/no/such/path", nil, 0)
		require.NoError(t, err)
		require.NotZero(t, q.Code)
		require.NotEmpty(t, q.Log)
	})

	t.Run("a REST port isn't RPC", func(t *testing.T) {
		_, err := c.Status(ctx, chain.Endpoint(n.REST(0)))
		require.ErrorIs(t, err, comet.ErrGarbage)
		require.True(t, fault.Is(err, fault.Chain))
		require.ErrorContains(t, err, n.REST(0))
	})

	t.Run("a node that catches up says so or is behind", func(t *testing.T) {
		n.StartNode(4)
		n.WaitSynced(4)
		node, err := c.Node(ctx, chain.Endpoint(n.RPC(4)))
		require.NoError(t, err)
		require.Zero(t, node.VotingPower)
		require.Positive(t, node.Peers)
	})

	t.Run("a node that ended doesn't answer", func(t *testing.T) {
		n.StopNode(4, syscall.SIGKILL)
		_, err := c.Status(ctx, chain.Endpoint(n.RPC(4)))
		require.True(t, fault.Is(err, fault.Transient), "%v", err)
		require.ErrorContains(t, err, n.RPC(4))
		// EOF when the kept connection is found broken first.
		require.Regexp(t, "connection refused|EOF|connection reset", err.Error())
	})
}

// TestRecordAnswers renews testdata when ROLLCALL_RECORD is set.
func TestRecordAnswers(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("ROLLCALL_RECORD")
	if dir == "" {
		return
	}
	n := localnet.Start(t, localnet.Options{Genesis: 4, Accounts: 5, ChainID: "recorded-1"})
	n.WaitHeight(0, 5)
	record := func(name, request string) {
		out, err := post(t.Context(), n.RPC(0), request)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), out, 0o600))
	}
	call := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method, params)
	}
	record("status", call("status", ""))
	record("net_info", call("net_info", ""))
	n.StopNode(3, syscall.SIGTERM)
	n.WaitHeight(0, n.Height(0)+4)
	height := fmt.Sprintf(`"height":"%d"`, n.Height(0)-1)
	record("validators", call("validators", height+`,"per_page":"100"`))
	record("commit", call("commit", height))
	record("block", call("block", `"height":"1"`))
	record("block_results", call("block_results", `"height":"1"`))
	record("consensus_params", call("consensus_params", ""))
	record("query", call("abci_query", `"path":"/cosmos.staking.v1beta1.Query/Params"`))
	record("future", call("commit", `"height":"99999999"`))
	record("no_tx", call("tx", `"hash":"q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="`))
	record("broadcast", call("broadcast_tx_sync", `"tx":"AAAA"`))
}

func post(ctx context.Context, url, request string) ([]byte, error) {
	return comet.Raw(ctx, url, request)
}
