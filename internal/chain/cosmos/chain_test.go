//go:build chain

package cosmos

import (
	"context"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
	"github.com/rollcall-dev/rollcall/test/localnet"
)

const stakeAmount = "50000000stake"

// live is a network and the adapter under test.
type live struct {
	*localnet.Network
	t *testing.T
	*Adapter
}

func start(t *testing.T, o localnet.Options, options map[string]string) live {
	t.Helper()
	n := localnet.Start(t, o)
	var endpoints []chain.Endpoint
	genesis := o.Genesis
	if genesis == 0 {
		genesis = 4
	}
	for i := range genesis {
		endpoints = append(endpoints, chain.Endpoint(n.RPC(i)))
	}
	a, err := New(options, n.ChainID, endpoints)
	require.NoError(t, err)
	return live{n, t, a}
}

// with is the same network through an adapter with other options.
func (l live) with(options map[string]string, endpoints ...chain.Endpoint) live {
	l.t.Helper()
	if endpoints == nil {
		endpoints = l.Endpoints()
	}
	a, err := New(options, l.ChainID, endpoints)
	require.NoError(l.t, err)
	l.Adapter = a
	return l
}

func (l live) validator(i int) keys.Validator {
	l.t.Helper()
	k := l.Keys(i)
	v, err := keys.Load(map[string][]byte{"c": k.PrivValidatorKey, "o": []byte(k.Mnemonic)}, fmt.Sprintf("Secret test/validator-%d-keys", i), i, "c", "o")
	require.NoError(l.t, err)
	return v
}

func (l live) identity(i int) chain.Identity {
	l.t.Helper()
	id, err := l.Identity(l.validator(i))
	require.NoError(l.t, err)
	require.Equal(l.t, l.Network.Node(i).Operator, id.Operator)
	require.Equal(l.t, l.Network.Node(i).Account, id.Account)
	require.Equal(l.t, l.Network.Node(i).ConsensusAddress, id.Address)
	return id
}

func (l live) stakeRequest(i int) chain.StakeRequest {
	return chain.StakeRequest{Keys: l.validator(i), Moniker: fmt.Sprintf("validator-%d", i), Amount: stakeAmount, Origin: origin(i)}
}

func (l live) unstakeRequest(i int) chain.UnstakeRequest {
	return chain.UnstakeRequest{Keys: l.validator(i), Origin: origin(i)}
}

func origin(i int) chain.Origin {
	return chain.Origin{Token: int64(i), Run: "run-uid", Check: func(context.Context) error { return nil }}
}

func (l live) record(i int) chain.Record {
	l.t.Helper()
	r, err := l.Record(l.t.Context(), l.identity(i))
	require.NoError(l.t, err)
	return r
}

// inSet tells whether validator i is in the set at a height, waiting for it.
func (l live) inSet(i int, height int64) bool {
	l.t.Helper()
	l.WaitHeight(0, height)
	s, err := l.Set(l.t.Context(), l.Endpoints()[0], height)
	require.NoError(l.t, err)
	_, ok := s.Find(l.identity(i).Address)
	return ok
}

func (l live) requireJoins(i int, r chain.Receipt) {
	l.t.Helper()
	require.True(l.t, r.Sent)
	require.False(l.t, l.inSet(i, r.Height+1), "a change is effective two blocks later")
	require.True(l.t, l.inSet(i, r.Height+2))
}

func (l live) requireLeaves(i int, r chain.Receipt) {
	l.t.Helper()
	require.True(l.t, r.Sent)
	require.True(l.t, l.inSet(i, r.Height+1), "a change is effective two blocks later")
	require.False(l.t, l.inSet(i, r.Height+2))
}

func (l live) requireSigns(i int, from int64) {
	l.t.Helper()
	address := l.identity(i).Address
	l.Eventually("the validator has signed three commits in a row", func(ctx context.Context) error {
		n, err := l.Adapter.Node(ctx, l.Endpoints()[0])
		if err != nil {
			return err
		}
		to := n.Height - 1
		if to-2 < from {
			return fmt.Errorf("height %d", to)
		}
		commits, err := l.Commits(ctx, l.Endpoints()[0], to-2, to)
		if err != nil {
			return err
		}
		for _, c := range commits {
			if !c.Signed(address) {
				return fmt.Errorf("no signature in %d: %v", c.Height, c.Votes)
			}
		}
		return nil
	})
}

// The life of a validator, each part of which starts where the one before ended.
func TestLifeOfAValidator(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 3, UnbondingTime: 8 * time.Second}, nil)
	ctx := t.Context()
	const joiner = 2
	l.StartNode(joiner)
	l.WaitSynced(joiner)

	require.Equal(t, chain.Unstaked, l.record(joiner).Status)
	require.Equal(t, chain.Bonded, l.record(0).Status)
	require.EqualValues(t, 100, l.record(0).Power)

	nothing, err := l.Unstake(ctx, l.unstakeRequest(joiner))
	require.NoError(t, err)
	require.False(t, nothing.Sent, "who has no stake has nothing to withdraw")

	require.NoError(t, l.Preflight(ctx, l.stakeRequest(joiner)))
	var noted []string
	request := l.stakeRequest(joiner)
	request.Origin.Sending = func(hash string) { noted = append(noted, hash) }
	begun := time.Now()
	staked, err := l.Stake(ctx, request)
	require.NoError(t, err)
	t.Logf("staked in %s: %+v", time.Since(begun), staked)
	require.Equal(t, []string{staked.Hash}, noted)
	l.requireJoins(joiner, staked)
	l.requireSigns(joiner, staked.Height+2)
	// Among the first votes of a joiner are usually some for nil.
	first, err := l.Commits(ctx, l.Endpoints()[0], staked.Height, staked.Height+4)
	require.NoError(t, err)
	require.NotContains(t, first[1].Votes, l.identity(joiner).Address)
	require.Contains(t, first[2].Votes, l.identity(joiner).Address)
	t.Logf("the joiner's first votes: %v %v %v", first[2].Votes[l.identity(joiner).Address], first[3].Votes[l.identity(joiner).Address], first[4].Votes[l.identity(joiner).Address])
	record := l.record(joiner)
	require.Equal(t, chain.Bonded, record.Status)
	require.Equal(t, "50000000", record.Tokens)
	require.EqualValues(t, 50, record.Power)
	require.False(t, record.Foreign)

	again, err := l.Stake(ctx, l.stakeRequest(joiner))
	require.NoError(t, err)
	require.False(t, again.Sent, "staking twice sends one transaction")
	require.NoError(t, l.Preflight(ctx, l.stakeRequest(joiner)))
	unjailed, err := l.Unjail(ctx, l.unstakeRequest(joiner))
	require.NoError(t, err)
	require.False(t, unjailed.Sent)

	unstaked, err := l.Unstake(ctx, l.unstakeRequest(joiner))
	require.NoError(t, err)
	l.requireLeaves(joiner, unstaked)
	require.Equal(t, chain.Unstaking, l.record(joiner).Status, "the chain says jailed, but it left by its own wish")
	again, err = l.Unstake(ctx, l.unstakeRequest(joiner))
	require.NoError(t, err)
	require.False(t, again.Sent, "unstaking twice sends one transaction")
	_, err = l.Unjail(ctx, l.unstakeRequest(joiner))
	require.True(t, fault.Is(err, fault.Refused), "%v", err)

	require.NoError(t, l.Preflight(ctx, l.stakeRequest(joiner)))
	restaked, err := l.Stake(ctx, l.stakeRequest(joiner))
	require.NoError(t, err, "staking while the withdrawal is under way")
	require.Contains(t, restaked.Detail, "again")
	l.requireJoins(joiner, restaked)
	l.requireSigns(joiner, restaked.Height+2)
	require.Equal(t, chain.Bonded, l.record(joiner).Status)

	unstaked, err = l.Unstake(ctx, l.unstakeRequest(joiner))
	require.NoError(t, err)
	l.requireLeaves(joiner, unstaked)
	l.Eventually("the record is gone", func(ctx context.Context) error {
		r, err := l.Record(ctx, l.identity(joiner))
		if err == nil && r.Status != chain.Unstaked {
			err = fmt.Errorf("status %s", r.Status)
		}
		return err
	})
	require.Equal(t, "0", l.record(joiner).Tokens)
	recreated, err := l.Stake(ctx, l.stakeRequest(joiner))
	require.NoError(t, err, "staking after the record is gone")
	require.Contains(t, recreated.Detail, "created")
	l.requireJoins(joiner, recreated)
	l.requireSigns(joiner, recreated.Height+2)

	for _, raw := range l.txMemos(staked.Height) {
		require.Equal(t, "rollcall token=2 run=run-uid", raw)
	}
}

// txMemos reads the memos of a block's transactions.
func (l live) txMemos(height int64) (memos []string) {
	l.t.Helper()
	b, err := l.rpc.Block(l.t.Context(), l.Endpoints()[0], height)
	require.NoError(l.t, err)
	require.NotEmpty(l.t, b.Txs)
	for _, raw := range b.Txs {
		body, err := sub(raw, 1)
		require.NoError(l.t, err)
		memo, err := sub(body, 2)
		require.NoError(l.t, err)
		memos = append(memos, string(memo))
	}
	return memos
}

// A record that ends between reading and sending: the stake is sent at the very
// time at which the withdrawal completes.
func TestStakesWhenTheWithdrawalEnds(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 3, UnbondingTime: 3 * time.Second}, nil)
	ctx := t.Context()
	const joiner = 2
	_, err := l.Stake(ctx, l.stakeRequest(joiner))
	require.NoError(t, err)
	for i := range 4 {
		_, err = l.Unstake(ctx, l.unstakeRequest(joiner))
		require.NoError(t, err)
		end := time.Now().Add(3*time.Second + time.Duration(i-2)*150*time.Millisecond)
		l.Eventually("the withdrawal nearly ends", func(context.Context) error {
			if time.Now().Before(end) {
				return fmt.Errorf("until %s", end)
			}
			return nil
		})
		r, err := l.Stake(ctx, l.stakeRequest(joiner))
		require.NoError(t, err)
		require.True(t, r.Sent)
		t.Log(r.Detail)
		require.Equal(t, chain.Bonded, l.record(joiner).Status)
	}
}

func TestAccountThatManyUseAtOnce(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 5}, nil)
	ctx := t.Context()

	t.Run("the same stake by four processes is sent once", func(t *testing.T) {
		var sent atomic.Int64
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			a, err := New(nil, l.ChainID, l.Endpoints()[i%2:])
			require.NoError(t, err)
			request := l.stakeRequest(2)
			request.Origin.Run = fmt.Sprint("run ", i)
			wg.Go(func() {
				r, err := a.Stake(ctx, request)
				if errs[i] = err; r.Sent {
					sent.Add(1)
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, sent.Load())
		require.Equal(t, "50000000", l.record(2).Tokens)
	})

	t.Run("the same withdrawal by four processes is sent once", func(t *testing.T) {
		var sent atomic.Int64
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			a, err := New(nil, l.ChainID, l.Endpoints()[i%2:])
			require.NoError(t, err)
			request := l.unstakeRequest(2)
			request.Origin.Run = fmt.Sprint("run ", i)
			wg.Go(func() {
				r, err := a.Unstake(ctx, request)
				if errs[i] = err; r.Sent {
					sent.Add(1)
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, sent.Load())
	})

	t.Run("a stake gets through while the account pays others", func(t *testing.T) {
		op, err := l.operator(l.validator(3))
		require.NoError(t, err)
		pay := message(nil).str(1, op.account).str(2, l.Network.Node(4).Account).sub(3, coin("stake", big.NewInt(1)))
		send := plan{action: "MsgSend", msgs: []message{packAny("/cosmos.bank.v1beta1.MsgSend", pay)}}
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = l.effect(ctx, op, chain.Origin{Run: fmt.Sprint("payer ", i)}, func(context.Context, chain.Endpoint) (plan, error) { return send, nil })
			})
		}
		r, err := l.Stake(ctx, l.stakeRequest(3))
		wg.Wait()
		require.NoError(t, err)
		require.True(t, r.Sent)
		for _, err := range errs {
			require.NoError(t, err)
		}
	})
}

func TestRefusalsBeforeSending(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 4, MaxValidators: 2}, nil)
	ctx := t.Context()
	stake := func(change func(*chain.StakeRequest)) error {
		r := l.stakeRequest(2)
		change(&r)
		preflight := l.Preflight(ctx, r)
		receipt, err := l.Stake(ctx, r)
		require.False(t, receipt.Sent)
		require.Equal(t, fault.CodeOf(preflight), fault.CodeOf(err), "preflight says the same: %v", preflight)
		return err
	}

	err := stake(func(r *chain.StakeRequest) { r.Amount = "99999999999stake" })
	require.True(t, fault.Is(err, fault.Chain))
	require.ErrorContains(t, err, "insufficient funds")
	require.ErrorContains(t, err, "send it at least 89999999999stake")

	err = stake(func(r *chain.StakeRequest) { r.Amount = "100000000uatom" })
	require.True(t, fault.Is(err, fault.Config), "%v", err)

	err = stake(func(r *chain.StakeRequest) { r.Amount = "999999" })
	require.True(t, fault.Is(err, fault.Config), "%v", err)
	require.ErrorContains(t, err, "no voting power")

	err = stake(func(r *chain.StakeRequest) { r.Amount = "99000000" })
	require.True(t, fault.Is(err, fault.Refused), "%v", err)
	require.ErrorContains(t, err, "would wait outside")

	err = stake(func(r *chain.StakeRequest) { r.Amount = "101000000" })
	require.True(t, fault.Is(err, fault.Refused), "%v", err)
	require.ErrorContains(t, err, "would push out validator")
	require.ErrorContains(t, err, "(validator-")

	// The set is full, so this one would be refused too, but worse comes first.
	err = stake(func(r *chain.StakeRequest) { r.Keys.Consensus = l.validator(0).Consensus })
	require.True(t, fault.Is(err, fault.Refused), "%v", err)
	require.ErrorContains(t, err, "used by another validator")

	err = stake(func(r *chain.StakeRequest) {
		*r = l.stakeRequest(0)
		r.Keys.Consensus = l.validator(2).Consensus
	})
	require.True(t, fault.Is(err, fault.Refused), "%v", err)
	require.ErrorContains(t, err, "another consensus key")
	swapped := l.validator(0)
	swapped.Consensus = l.validator(2).Consensus
	id, err := l.Identity(swapped)
	require.NoError(t, err)
	record, err := l.Record(ctx, id)
	require.NoError(t, err)
	require.True(t, record.Foreign)
	_, err = l.Unstake(ctx, chain.UnstakeRequest{Keys: swapped})
	require.True(t, fault.Is(err, fault.Refused), "%v", err)

	other := l.with(map[string]string{"denom": "ucoin"})
	err = other.Preflight(ctx, chain.StakeRequest{Keys: l.validator(2), Moniker: "m", Amount: "100000000"})
	require.True(t, fault.Is(err, fault.Config), "%v", err)
	require.ErrorContains(t, err, `stakes "stake"`)

	wrong, err := New(nil, "another-chain", l.Endpoints())
	require.NoError(t, err)
	_, err = wrong.Stake(ctx, l.stakeRequest(2))
	require.True(t, fault.Is(err, fault.Config), "%v", err)
	require.ErrorContains(t, err, "another-chain")
	_, err = wrong.Set(ctx, l.Endpoints()[0], 0)
	require.True(t, fault.Is(err, fault.Config), "%v", err)
	_, err = wrong.Node(ctx, l.Endpoints()[0])
	require.True(t, fault.Is(err, fault.Config), "%v", err)

	lost := fault.New(fault.LockLost, "taken over")
	request := l.unstakeRequest(1)
	request.Origin.Check = func(context.Context) error { return lost }
	before := l.record(1)
	_, err = l.Unstake(ctx, request)
	require.True(t, fault.Is(err, fault.LockLost), "%v", err)
	require.Equal(t, before.Tokens, l.record(1).Tokens, "who lost the lock sends nothing")

	_, err = l.Unstake(ctx, l.unstakeRequest(1))
	require.NoError(t, err)
	_, err = l.Unstake(ctx, l.unstakeRequest(0))
	require.True(t, fault.Is(err, fault.Refused), "%v", err)
	require.ErrorContains(t, err, "last validator")
	l.WaitHeight(0, l.Height(0)+3)
}

func TestGasAndFees(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 5, MinGasPrices: "0.01stake"}, nil)
	ctx := t.Context()
	funds := func(i int) *big.Int {
		b, err := l.balance(ctx, l.Endpoints()[0], l.identity(i).Account, "stake", 0)
		require.NoError(t, err)
		return b
	}

	t.Run("the node's price is paid unless an option says otherwise", func(t *testing.T) {
		before := funds(2)
		r, err := l.Stake(ctx, l.stakeRequest(2))
		require.NoError(t, err)
		result, err := l.rpc.Tx(ctx, l.Endpoints()[0], r.Hash)
		require.NoError(t, err)
		fee := new(big.Int).Sub(before, funds(2))
		fee.Sub(fee, big.NewInt(50000000))
		require.Equal(t, (result.GasWanted+99)/100, fee.Int64())
	})

	t.Run("a fee that is too small is the chain's refusal, with the sum it wants", func(t *testing.T) {
		_, err := l.with(map[string]string{"gasPrice": "0stake"}).Stake(ctx, l.stakeRequest(3))
		require.True(t, fault.Is(err, fault.Chain), "%v", err)
		require.ErrorContains(t, err, "code 13")
		require.ErrorContains(t, err, "required")
		require.ErrorContains(t, err, "gasPrice")
	})

	t.Run("the stake leaves room for the fee", func(t *testing.T) {
		r := l.stakeRequest(3)
		r.Amount = funds(3).String()
		err := l.Preflight(ctx, r)
		require.True(t, fault.Is(err, fault.Chain), "%v", err)
		require.ErrorContains(t, err, "insufficient funds")
		_, err = l.Stake(ctx, r)
		require.True(t, fault.Is(err, fault.Chain), "%v", err)
		require.Equal(t, chain.Unstaked, l.record(3).Status)
	})

	t.Run("out of gas in a block is tried once more with twice the gas", func(t *testing.T) {
		var hashes []string
		r := l.stakeRequest(3)
		r.Origin.Sending = func(hash string) { hashes = append(hashes, hash) }
		receipt, err := l.with(map[string]string{"gasAdjustment": "1"}).Stake(ctx, r)
		require.NoError(t, err)
		require.Len(t, hashes, 2)
		first, err := l.rpc.Tx(ctx, l.Endpoints()[0], hashes[0])
		require.NoError(t, err)
		require.EqualValues(t, codeOutOfGas, first.Code)
		require.Equal(t, hashes[1], receipt.Hash)
	})

	t.Run("an account without funds doesn't exist", func(t *testing.T) {
		v := l.validator(4)
		v.Operator = keys.Secret(strings.Repeat("42", 32))
		err := l.Preflight(ctx, chain.StakeRequest{Keys: v, Moniker: "poor", Amount: stakeAmount})
		require.True(t, fault.Is(err, fault.Chain), "%v", err)
		require.ErrorContains(t, err, "insufficient funds")
	})
}

func TestNodesThatFail(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 4, Accounts: 6}, nil)
	ctx := t.Context()

	t.Run("a dead endpoint is passed over", func(t *testing.T) {
		dead := l.with(nil, "http://127.0.0.1:1", chain.Endpoint(l.RPC(0)))
		r, err := dead.Stake(ctx, l.stakeRequest(4))
		require.NoError(t, err)
		require.True(t, r.Sent)
	})

	t.Run("a node without an index is searched block by block", func(t *testing.T) {
		config := filepath.Join(l.Network.Node(5).Home, "config", "config.toml")
		raw, err := os.ReadFile(config)
		require.NoError(t, err)
		require.Contains(t, string(raw), `indexer = "kv"`)
		require.NoError(t, os.WriteFile(config, []byte(strings.Replace(string(raw), `indexer = "kv"`, `indexer = "null"`, 1)), 0o600))
		l.StartNode(5)
		l.WaitSynced(5)
		r, err := l.with(nil, chain.Endpoint(l.RPC(5))).Unstake(ctx, l.unstakeRequest(4))
		require.NoError(t, err)
		require.True(t, r.Sent)
		// Until then the power of node 4, which doesn't run, counts.
		l.WaitHeight(0, r.Height+3)
		result, err := l.rpc.Tx(ctx, chain.Endpoint(l.RPC(0)), r.Hash)
		require.NoError(t, err)
		require.Equal(t, result.Height, r.Height)
		_, err = l.rpc.Tx(ctx, chain.Endpoint(l.RPC(5)), r.Hash)
		require.ErrorIs(t, err, comet.ErrNoIndex)
	})

	t.Run("the node that has the transaction ends, and another one takes over", func(t *testing.T) {
		a := l.with(nil, chain.Endpoint(l.RPC(3)), chain.Endpoint(l.RPC(0)))
		request := l.stakeRequest(5)
		request.Origin.Sending = func(string) { l.StopNode(3, syscall.SIGKILL) }
		r, err := a.Stake(ctx, request)
		require.NoError(t, err)
		require.True(t, r.Sent)
		l.StartNode(3)
		l.WaitSynced(3)
	})

	t.Run("a halted chain ends the wait and says so", func(t *testing.T) {
		halted := l.with(nil)
		halted.pace.still = 5 * time.Second
		request := l.unstakeRequest(5)
		request.Origin.Sending = func(string) {
			for i := 1; i < 4; i++ {
				l.StopNode(i, syscall.SIGKILL)
			}
		}
		_, err := halted.Unstake(ctx, request)
		require.True(t, fault.Is(err, fault.TimedOut), "%v", err)
		require.ErrorContains(t, err, "may still get into a block")
		t.Log(err)
		for i := 1; i < 4; i++ {
			l.StartNode(i)
		}
		l.WaitHeight(0, l.Height(0)+2)
		_, err = l.Unstake(ctx, l.unstakeRequest(5))
		require.NoError(t, err)
		require.Contains(t, []chain.Status{chain.Unstaking, chain.Unstaked}, l.record(5).Status)
	})
}

// Others' stake stays with a validator that withdrew its own, and keeps its
// record; slashing has made its shares worth an odd sum.
func TestOthersHaveDelegatedAndTheStakeWasSlashed(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 4, SignedBlocksWindow: 10, UnbondingTime: 5 * time.Second}, nil)
	ctx := t.Context()
	const odd = 33333333
	status := func(want chain.Status) {
		l.Eventually("validator is "+string(want), func(ctx context.Context) error {
			r, err := l.Record(ctx, l.identity(2))
			if err == nil && r.Status != want {
				err = fmt.Errorf("status %s", r.Status)
			}
			return err
		})
	}
	request := l.stakeRequest(2)
	request.Amount = "7654321"
	_, err := l.Stake(ctx, request)
	require.NoError(t, err)
	friend, err := l.operator(l.validator(3))
	require.NoError(t, err)
	delegate := message(nil).str(1, friend.account).str(2, l.identity(2).Operator).sub(3, coin("stake", big.NewInt(odd)))
	_, err = l.effect(ctx, friend, origin(3), func(context.Context, chain.Endpoint) (plan, error) {
		return plan{action: "MsgDelegate", msgs: []message{packAny(urlDelegate, delegate)}}, nil
	})
	require.NoError(t, err)

	status(chain.Jailed) // its node doesn't run
	_, err = l.Unstake(ctx, l.unstakeRequest(2))
	require.NoError(t, err)
	status(chain.Unstaking)
	again, err := l.Unstake(ctx, l.unstakeRequest(2))
	require.NoError(t, err)
	require.False(t, again.Sent)
	status(chain.Unstaked)
	left := l.record(2)
	require.NotEqual(t, "0", left.Tokens, "the others' stake is still there")

	r, err := l.Stake(ctx, request)
	require.NoError(t, err, "waits until the jail opens")
	require.Contains(t, r.Detail, "again")
	require.Equal(t, chain.Bonded, l.record(2).Status)
	l.requireJoins(2, r)
	_, err = l.Unstake(ctx, l.unstakeRequest(2))
	require.NoError(t, err)
	require.Equal(t, chain.Unstaking, l.record(2).Status)
}

func TestJailAndTombstone(t *testing.T) {
	t.Parallel()
	l := start(t, localnet.Options{Genesis: 2, Accounts: 4, SignedBlocksWindow: 20}, nil)
	ctx := t.Context()
	status := func(i int, want chain.Status) {
		l.Eventually("validator is "+string(want), func(ctx context.Context) error {
			r, err := l.Record(ctx, l.identity(i))
			if err == nil && r.Status != want {
				err = fmt.Errorf("status %s", r.Status)
			}
			return err
		})
	}

	// Node 3 gets a copy of node 2's key while that isn't staked, so neither
	// finds signatures of it. Both sign as soon as it is staked.
	l.StartNode(2)
	l.WaitSynced(2)
	twin := l.validator(2)
	own, err := os.ReadFile(filepath.Join(l.Network.Node(3).Home, "config", "priv_validator_key.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(l.Network.Node(3).Home, "config", "priv_validator_key.json"), l.Keys(2).PrivValidatorKey, 0o600))
	l.StartNode(3)
	l.WaitSynced(3)
	_, err = l.Stake(ctx, l.stakeRequest(2))
	require.NoError(t, err)
	status(2, chain.Tombstoned)
	l.StopNode(2, syscall.SIGTERM)
	l.StopNode(3, syscall.SIGTERM)

	for name, err := range map[string]error{
		"preflight": l.Preflight(ctx, l.stakeRequest(2)),
		"stake":     second(l.Stake(ctx, l.stakeRequest(2))),
		"unjail":    second(l.Unjail(ctx, chain.UnstakeRequest{Keys: twin})),
	} {
		require.True(t, fault.Is(err, fault.Refused), "%s: %v", name, err)
		require.ErrorContains(t, err, "tombstoned")
	}
	r, err := l.Unstake(ctx, l.unstakeRequest(2))
	require.NoError(t, err, "what is left of the stake can be withdrawn")
	require.True(t, r.Sent)
	require.Equal(t, chain.Tombstoned, l.record(2).Status)

	// Node 3 with its own key: staked without running, so jailed for downtime.
	require.NoError(t, os.WriteFile(filepath.Join(l.Network.Node(3).Home, "config", "priv_validator_key.json"), own, 0o600))
	_, err = l.Stake(ctx, l.stakeRequest(3))
	require.NoError(t, err)
	status(3, chain.Jailed)
	require.True(t, l.record(3).JailedUntil.After(time.Now().Add(30*time.Second)))
	_, err = l.Stake(ctx, l.stakeRequest(3))
	require.True(t, fault.Is(err, fault.Refused), "%v", err)
	require.ErrorContains(t, err, "unjail")

	impatient := l.with(nil)
	impatient.pace.jail = time.Second
	_, err = impatient.Unjail(ctx, l.unstakeRequest(3))
	require.True(t, fault.Is(err, fault.Chain), "%v", err)
	require.ErrorContains(t, err, "jailed until")

	l.StartNode(3)
	l.WaitSynced(3)
	r, err = l.Unjail(ctx, l.unstakeRequest(3))
	require.NoError(t, err, "waits for the jail to open")
	l.requireJoins(3, r)
	l.requireSigns(3, r.Height+2)
	require.Equal(t, chain.Bonded, l.record(3).Status)

	unstaked, err := l.Unstake(ctx, l.unstakeRequest(3))
	require.NoError(t, err, "a slashed stake is withdrawn to the last token")
	l.requireLeaves(3, unstaked)
	require.Equal(t, chain.Unstaking, l.record(3).Status)
}
