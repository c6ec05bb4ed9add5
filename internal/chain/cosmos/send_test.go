package cosmos

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"net/http"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

func unstake(t *testing.T, a *Adapter, change ...func(*chain.Origin)) (chain.Receipt, error) {
	t.Helper()
	origin := chain.Origin{Token: 7, Run: "9a1c"}
	for _, c := range change {
		c(&origin)
	}
	return a.Unstake(t.Context(), chain.UnstakeRequest{Keys: mustValidator(t, words12), Origin: origin})
}

func sequenceLog(expected, got int) string {
	return fmt.Sprintf("account sequence mismatch, expected %d, got %d: incorrect account sequence", expected, got)
}

func TestSending(t *testing.T) {
	t.Parallel()
	const many = 50
	for name, c := range map[string]struct {
		script func(f *fakeNode)
		code   fault.Code
		says   string
		sent   int // broadcasts
		signed int // different transactions
	}{
		"one broadcast, one transaction": {func(*fakeNode) {}, fault.OK, "", 1, 1},
		"already in the mempool is accepted": {func(f *fakeNode) {
			f.broadcasts = []reply{{code: codeInCache, log: "tx already in mempool", keep: true}}
		}, fault.OK, "", 1, 1},
		"an answer that got lost is no reason to sign another one": {func(f *fakeNode) {
			f.broadcasts = []reply{{hangUp: true, keep: true}}
		}, fault.OK, "", 1, 1},
		"a request that got lost is sent again as it was": {func(f *fakeNode) {
			f.broadcasts = []reply{{hangUp: true}, {hangUp: true}}
		}, fault.OK, "", 3, 1},
		"a transaction that a node dropped is sent again as it was": {func(f *fakeNode) {
			f.outcomes = []outcome{{drop: true}}
		}, fault.OK, "", 2, 1},
		"a full mempool is waited for": {func(f *fakeNode) {
			f.broadcasts = []reply{{code: codeMempoolFull, log: "mempool is full"}, {code: codeMempoolFull, log: "mempool is full"}}
		}, fault.OK, "", 3, 1},
		"the next sequence number is signed when another transaction was first": {func(f *fakeNode) {
			f.broadcasts = []reply{{code: codeSequence, log: sequenceLog(8, 7), takeOther: true}}
		}, fault.OK, "", 2, 2},
		"the same in a rehearsal": {func(f *fakeNode) {
			f.simulated = []outcome{{codespace: spaceSDK, code: codeSequence, log: sequenceLog(8, 7)}}
		}, fault.OK, "", 1, 1},
		"the same in a block": {func(f *fakeNode) {
			f.outcomes = []outcome{{codespace: spaceSDK, code: codeSequence, log: sequenceLog(8, 7)}}
		}, fault.OK, "", 2, 2},
		"the same without a word from the node": {func(f *fakeNode) {
			f.broadcasts = []reply{{takeOther: true}}
		}, fault.OK, "", 2, 2},
		"five times the wrong sequence number is enough": {func(f *fakeNode) {
			for range many {
				f.broadcasts = append(f.broadcasts, reply{code: codeSequence, log: sequenceLog(8, 7)})
			}
		}, fault.Chain, "sdk code 32", maxSequences, maxSequences},
		"out of gas once is tried with more": {func(f *fakeNode) {
			f.outcomes = []outcome{{codespace: spaceSDK, code: codeOutOfGas, log: "out of gas"}}
		}, fault.OK, "", 2, 2},
		"out of gas twice is the chain's refusal": {func(f *fakeNode) {
			f.outcomes = []outcome{{codespace: spaceSDK, code: codeOutOfGas, log: "out of gas"}, {codespace: spaceSDK, code: codeOutOfGas, log: "out of gas"}}
		}, fault.Chain, "gasAdjustment", 2, 2},
		"a refusal in a block is the chain's, although the mempool took it": {func(f *fakeNode) {
			f.outcomes = []outcome{{codespace: spaceSDK, code: 5, log: "insufficient funds"}}
		}, fault.Chain, "at stage block: sdk code 5: insufficient funds", 1, 1},
		"a refusal by the mempool is the chain's": {func(f *fakeNode) {
			f.broadcasts = []reply{{code: codeInsufficientFee, log: "insufficient fees; got: required: 5000stake"}}
		}, fault.Chain, "required: 5000stake", 1, 1},
		"a refusal in a rehearsal sends nothing": {func(f *fakeNode) {
			f.simulated = []outcome{{codespace: spaceSDK, code: 4, log: "unauthorized"}}
		}, fault.Chain, "at stage simulate: sdk code 4: unauthorized", 0, 0},
		"a refusal for the state's sake is checked again, then stands": {func(f *fakeNode) {
			for range many {
				f.simulated = append(f.simulated, outcome{codespace: spaceStaking, code: 19, log: "no delegation"})
			}
		}, fault.Chain, "staking code 19", 0, 0},
		"what never gets into a block ends at its timeout height": {func(f *fakeNode) {
			for range many {
				f.outcomes = append(f.outcomes, outcome{drop: true})
			}
		}, fault.TimedOut, "can't get into a later one", 0, 1},
		"a chain that stands still ends the wait": {func(f *fakeNode) {
			f.broadcasts = []reply{{keep: true}}
			f.still = true
		}, fault.TimedOut, "made no block", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			c.script(f)
			var announced []string
			r, err := unstake(t, adapterFor(t, f), func(o *chain.Origin) {
				o.Sending = func(hash string) { announced = append(announced, hash) }
			})
			require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
			different := map[string]bool{}
			for _, hash := range f.sent() {
				different[hash] = true
			}
			require.Len(t, different, c.signed)
			require.Len(t, announced, c.signed, "each is announced once")
			if c.sent > 0 || c.signed == 0 {
				require.Len(t, f.sent(), c.sent)
			}
			if err != nil {
				require.ErrorContains(t, err, c.says)
				require.Zero(t, r)
				return
			}
			require.True(t, r.Sent)
			require.Equal(t, announced[len(announced)-1], r.Hash)
			require.Equal(t, f.included[r.Hash].Height, r.Height)
		})
	}
}

func TestLockIsCheckedBeforeEveryBroadcast(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.LockLost, "taken over by bob")

	t.Run("before the first: nothing is sent", func(t *testing.T) {
		t.Parallel()
		f := newFake(t)
		_, err := unstake(t, adapterFor(t, f), func(o *chain.Origin) { o.Check = func(context.Context) error { return lost } })
		require.True(t, fault.Is(err, fault.LockLost), "%v", err)
		require.Empty(t, f.sent())
	})

	t.Run("before the second: it isn't sent again, and the error tells of the first", func(t *testing.T) {
		t.Parallel()
		f := newFake(t)
		f.outcomes = []outcome{{drop: true}}
		checks := 0
		_, err := unstake(t, adapterFor(t, f), func(o *chain.Origin) {
			o.Check = func(context.Context) error {
				if checks++; checks > 1 {
					return lost
				}
				return nil
			}
		})
		require.True(t, fault.Is(err, fault.LockLost), "%v", err)
		require.ErrorContains(t, err, "may still get into a block")
		require.Len(t, f.sent(), 1)
		require.Equal(t, 2, checks)
	})

	t.Run("a cancellation keeps its cause", func(t *testing.T) {
		t.Parallel()
		f := newFake(t)
		for range 50 {
			f.outcomes = append(f.outcomes, outcome{drop: true})
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := adapterFor(t, f).Unstake(ctx, chain.UnstakeRequest{Keys: mustValidator(t, words12), Origin: chain.Origin{
			Sending: func(string) { cancel(lost) },
		}})
		require.True(t, fault.Is(err, fault.LockLost), "%v", err)
	})
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	t.Run("a node of another chain is a mistake in the configuration", func(t *testing.T) {
		t.Parallel()
		good, bad := newFake(t), newFake(t)
		bad.chainID = "other-1"
		_, err := unstake(t, adapterFor(t, bad, good))
		require.True(t, fault.Is(err, fault.Config), "%v", err)
		require.ErrorContains(t, err, `is a node of chain "other-1", but the network's chain is "fake-1"`)
		require.Empty(t, good.sent())
		a := adapterFor(t, bad)
		for _, err := range []error{
			second(a.Node(t.Context(), bad.Endpoint)), second(a.Set(t.Context(), bad.Endpoint, 3)), second(a.Commits(t.Context(), bad.Endpoint, 3, 4)),
		} {
			require.Error(t, err)
		}
	})

	t.Run("nodes that don't answer, or answer nonsense, are passed over", func(t *testing.T) {
		t.Parallel()
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
		t.Cleanup(page.Close)
		good := newFake(t)
		a := adapterFor(t, good)
		a.endpoints = []chain.Endpoint{"http://127.0.0.1:1", chain.Endpoint(page.URL), good.Endpoint}
		r, err := unstake(t, a)
		require.NoError(t, err)
		require.True(t, r.Sent)

		a.endpoints = a.endpoints[:2]
		_, err = unstake(t, a)
		require.True(t, fault.Is(err, fault.Chain), "one of them did answer: %v", err)
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.ErrorContains(t, err, comet.ErrGarbage.Error())
		a.endpoints = a.endpoints[:1]
		_, err = unstake(t, a)
		require.True(t, fault.Is(err, fault.Transient), "%v", err)
	})

	t.Run("an adapter needs endpoints, a chain id and options that make sense", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{
			second(New(nil, "", []chain.Endpoint{"http://a:1"})), second(New(nil, "c", nil)), second(New(nil, "c", []chain.Endpoint{"a:1"})),
			second(New(map[string]string{"x": "y"}, "c", []chain.Endpoint{"http://a:1"})),
		} {
			require.True(t, fault.Is(err, fault.Config), "%v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }
