package comet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
)

// recorded is an answer of a real node (see TestRecordAnswers).
func recorded(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	return string(raw)
}

func result(t testing.TB, name string) []byte {
	t.Helper()
	raw, refusal, err := parseEnvelope([]byte(recorded(t, name)))
	require.NoError(t, err)
	require.Nil(t, refusal)
	return raw
}

// fakeNode answers every request for a method with what answers holds for it,
// and counts the requests. It is no node: it is for answers that a real one
// doesn't give.
type fakeNode struct {
	chain.Endpoint
	asked   atomic.Int64
	answers map[string]string
}

func newFakeNode(t testing.TB, answers map[string]string) *fakeNode {
	t.Helper()
	f := &fakeNode{answers: answers}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		var request struct{ Method string }
		_ = json.NewDecoder(r.Body).Decode(&request)
		_, _ = io.WriteString(w, f.answers[request.Method])
	}))
	t.Cleanup(server.Close)
	f.Endpoint = chain.Endpoint(server.URL)
	return f
}

func TestRecordedAnswersParse(t *testing.T) {
	t.Parallel()
	node, err := parseStatus(result(t, "status"))
	require.NoError(t, err)
	require.Equal(t, "recorded-1", node.ChainID)
	require.Positive(t, node.Height)
	require.EqualValues(t, 100, node.VotingPower)
	peers, err := parseNetInfo(result(t, "net_info"))
	require.NoError(t, err)
	require.Positive(t, peers)
	set, err := parseValidators(result(t, "validators"))
	require.NoError(t, err)
	require.Len(t, set.members, 4)
	commit, err := parseCommit(result(t, "commit"))
	require.NoError(t, err)
	require.True(t, commit.canonical)
	require.Len(t, commit.signatures, 4)
	hash, err := hashSet(set.members)
	require.NoError(t, err)
	require.Equal(t, commit.validatorsHash, hash, "the Merkle root of the set is what the header says")
	block, err := parseBlock(result(t, "block"))
	require.NoError(t, err)
	require.EqualValues(t, 1, block.Height)
	results, err := parseBlockResults(result(t, "block_results"))
	require.NoError(t, err)
	require.EqualValues(t, 1, results.Height)
	params, err := parseConsensusParams(result(t, "consensus_params"))
	require.NoError(t, err)
	require.EqualValues(t, -1, params.MaxGas)
	query, err := parseQuery(result(t, "query"))
	require.NoError(t, err)
	require.Positive(t, query.Height)
	require.NotEmpty(t, query.Value)
	check, err := parseBroadcast(result(t, "broadcast"))
	require.NoError(t, err)
	require.EqualValues(t, 2, check.Code)
}

// Every field that is checked is taken away, or made senseless, in turn.
func TestIncompleteOrSenselessAnswersAreRefused(t *testing.T) {
	t.Parallel()
	parsers := map[string]func([]byte) error{
		"status":           func(b []byte) error { _, err := parseStatus(b); return err },
		"net_info":         func(b []byte) error { _, err := parseNetInfo(b); return err },
		"validators":       func(b []byte) error { _, err := parseValidators(b); return err },
		"commit":           func(b []byte) error { _, err := parseCommit(b); return err },
		"block":            func(b []byte) error { _, err := parseBlock(b); return err },
		"consensus_params": func(b []byte) error { _, err := parseConsensusParams(b); return err },
		"query":            func(b []byte) error { _, err := parseQuery(b); return err },
		"broadcast":        func(b []byte) error { _, err := parseBroadcast(b); return err },
	}
	for _, c := range []struct{ name, path string }{
		{"status", "node_info.id"}, {"status", "node_info.network"}, {"status", "sync_info.latest_block_height"},
		{"status", "sync_info.latest_block_time"}, {"status", "sync_info.catching_up"}, {"status", "sync_info.latest_app_hash"},
		{"status", "validator_info.address"}, {"status", "validator_info.voting_power"},
		{"net_info", "n_peers"},
		{"validators", "block_height"}, {"validators", "total"}, {"validators", "count"}, {"validators", "validators"},
		{"validators", "validators.0.address"}, {"validators", "validators.0.pub_key.value"}, {"validators", "validators.0.voting_power"},
		{"commit", "signed_header.header.height"}, {"commit", "signed_header.header.chain_id"}, {"commit", "signed_header.header.time"},
		{"commit", "signed_header.header.validators_hash"}, {"commit", "signed_header.commit.round"},
		{"commit", "signed_header.commit.block_id.hash"}, {"commit", "signed_header.commit.block_id.parts.total"}, {"commit", "signed_header.commit.block_id.parts.hash"}, {"commit", "signed_header.commit.height"},
		{"commit", "signed_header.commit.signatures"}, {"commit", "signed_header.commit.signatures.0.block_id_flag"}, {"commit", "canonical"},
		{"block", "block"}, {"block", "block.header.height"}, {"block", "block.header.time"}, {"block", "block.header.chain_id"},
		{"consensus_params", "block_height"}, {"consensus_params", "consensus_params.block.max_gas"},
		{"consensus_params", "consensus_params.evidence.max_age_duration"}, {"consensus_params", "consensus_params.validator.pub_key_types"},
		{"query", "response"}, {"query", "response.code"}, {"query", "response.height"},
		{"broadcast", "code"}, {"broadcast", "hash"},
	} {
		for what, value := range map[string]any{"gone": nil, "negative": "-5", "huge": "99999999999999999999999", "another type": map[string]any{}, "a list": []any{1.5}} {
			t.Run(c.name+" "+c.path+" "+what, func(t *testing.T) {
				t.Parallel()
				var doc any
				require.NoError(t, json.Unmarshal(result(t, c.name), &doc))
				change(t, doc, strings.Split(c.path, "."), value)
				raw, err := json.Marshal(doc)
				require.NoError(t, err)
				if free := map[string]bool{"node_info.id": true, "node_info.network": true, "header.chain_id": true}; what == "negative" || what == "huge" {
					for suffix := range free {
						if strings.HasSuffix(c.path, suffix) {
							return // a name may look like that
						}
					}
				}
				require.Error(t, parsers[c.name](raw), "%s", raw)
			})
		}
	}
}

// change replaces the value at a path, or takes it away if it is nil.
func change(t testing.TB, doc any, path []string, value any) {
	t.Helper()
	switch d := doc.(type) {
	case map[string]any:
		require.Contains(t, d, path[0])
		if len(path) > 1 {
			change(t, d[path[0]], path[1:], value)
			return
		}
		if value == nil {
			delete(d, path[0])
			return
		}
		d[path[0]] = value
	case []any:
		change(t, d[0], path[1:], value)
	}
}

func TestWhatIsNoCometBFTNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		code   fault.Code
		says   string
	}{
		"a web page":                  {200, "<html>welcome</html>", fault.Chain, "answered what isn't CometBFT RPC (status): not a JSON object; it began with \"<html>welcome</html>\""},
		"nothing":                     {200, "", fault.Chain, "answered what isn't CometBFT RPC"},
		"another JSON":                {200, `{"hello":1}`, fault.Chain, `no "jsonrpc":"2.0"`},
		"an Ethereum node's answer":   {200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`, fault.Chain, "answered what isn't CometBFT RPC"},
		"a null result":               {200, `{"jsonrpc":"2.0","id":1,"result":null}`, fault.Chain, "neither result nor error"},
		"an unknown method":           {200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`, fault.Chain, "refuses the RPC method status"},
		"an internal error":           {200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":"boom"}}`, fault.Transient, "boom"},
		"half an answer":              {200, `{"jsonrpc":"2.0","id":1,"resu`, fault.Chain, "answered what isn't CometBFT RPC"},
		"a long page is quoted short": {200, strings.Repeat("x", 5000), fault.Chain, `"` + strings.Repeat("x", quoted) + `..."`},
		"bytes":                       {200, "\xff\xfe\x00", fault.Chain, "answered what isn't CometBFT RPC"},
		"a proxy without its server":  {502, "Bad Gateway", fault.Transient, "HTTP status 502"},
		"too many requests":           {429, "slow down", fault.Transient, "HTTP status 429"},
		"not found":                   {404, "404 page not found", fault.Chain, "answered what isn't CometBFT RPC"},
		"a redirect":                  {302, "", fault.Chain, "answered what isn't CometBFT RPC"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer fake.Close()
			_, err := New().Status(t.Context(), chain.Endpoint(fake.URL))
			require.True(t, fault.Is(err, c.code), "%v", err)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, fake.URL)
			require.Less(t, len(err.Error()), 500)
		})
	}
}

func TestEndlessAnswersAreCutOff(t *testing.T) {
	t.Parallel()
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		block := []byte(strings.Repeat("a", 1<<20))
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer fake.Close()
	_, err := New(WithTimeout(time.Minute)).Status(t.Context(), chain.Endpoint(fake.URL))
	require.ErrorIs(t, err, ErrGarbage)
	require.ErrorContains(t, err, "more than 32 MiB")
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer silent.Close()
	defer close(release)
	e := chain.Endpoint(silent.URL)

	begun := time.Now()
	_, err := New(WithTimeout(50*time.Millisecond)).Status(t.Context(), e)
	require.True(t, fault.Is(err, fault.Transient), "%v", err)
	require.ErrorContains(t, err, "no answer within 50ms")
	require.Less(t, time.Since(begun), 5*time.Second)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = New().Status(ctx, e)
	require.True(t, fault.Is(err, fault.TimedOut), "the caller's own deadline: %v", err)

	lost := fault.New(fault.LockLost, "taken over by bob")
	caused, end := context.WithCancelCause(t.Context())
	end(lost)
	_, err = New().Status(caused, e)
	require.True(t, fault.Is(err, fault.LockLost), "the cause of a cancellation stays: %v", err)
}

func TestEndpointsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "validator-0:26657", "ftp://validator-0", "http://", "://", "http://user:hunter2@%zz"} {
		_, err := New().Status(t.Context(), chain.Endpoint(bad))
		require.True(t, fault.Is(err, fault.Config), "%q: %v", bad, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
	u, err := URL("tcp://127.0.0.1:26657")
	require.NoError(t, err)
	require.Equal(t, "http", u.Scheme)
	_, err = New().Status(t.Context(), "http://user:hunter2@127.0.0.1:1")
	require.True(t, fault.Is(err, fault.Transient), "%v", err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestNodesRefusalsAreKnownByTheirText(t *testing.T) {
	t.Parallel()
	u, err := URL("http://127.0.0.1:26657")
	require.NoError(t, err)
	for text, c := range map[string]struct {
		method string
		is     error
		code   fault.Code
	}{
		"height 9 must be less than or equal to the current blockchain height 5":       {"commit", ErrFutureHeight, fault.Transient},
		"height 1 is not available, lowest height is 51":                               {"commit", ErrPruned, fault.Chain},
		"could not find results for height #3":                                         {"block_results", ErrPruned, fault.Chain},
		"tx (AB) not found":                                                            {"tx", ErrNoTx, fault.Transient},
		"transaction indexing is disabled":                                             {"tx", ErrNoIndex, fault.Chain},
		"tx already exists in cache":                                                   {"broadcast_tx_sync", ErrInCache, fault.Chain},
		"mempool is full: number of txs 5000 (max: 5000)":                              {"broadcast_tx_sync", nil, fault.Transient},
		"Tx too large. Max size is 1048576, but got 2000000":                           {"broadcast_tx_sync", nil, fault.Chain},
		"something that nobody has thought of " + strings.Repeat("and so on ", 100000): {"status", nil, fault.Transient},
	} {
		err := refused(u, c.method, rpcError{Code: -32603, Message: "Internal error", Data: text})
		require.Equal(t, c.code, fault.CodeOf(err), clip(text, 60))
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
		require.Less(t, len(err.Error()), 600)
	}
	var refusal rpcError
	require.NoError(t, json.Unmarshal([]byte(`{"code":-32603,"message":"Internal error"}`), &refusal))
	require.ErrorContains(t, refused(u, "status", refusal), "Internal error")
	for name, want := range map[string]error{"future": ErrFutureHeight, "no_tx": ErrNoTx} {
		_, r, err := parseEnvelope([]byte(recorded(t, name)))
		require.NoError(t, err)
		require.ErrorIs(t, refused(u, map[string]string{"future": "commit", "no_tx": "tx"}[name], *r), want, "a real node's words")
	}
}

func TestCommits(t *testing.T) {
	t.Parallel()
	commit, err := parseCommit(result(t, "commit"))
	require.NoError(t, err)
	height := commit.height

	t.Run("the set is fetched once for many clients' calls", func(t *testing.T) {
		t.Parallel()
		f := newFakeNode(t, map[string]string{"commit": recorded(t, "commit"), "validators": recorded(t, "validators")})
		c := New()
		for range 3 {
			got, err := c.Commits(t.Context(), f.Endpoint, height, height)
			require.NoError(t, err)
			require.Len(t, got[0].Votes, 4)
			signed := 0
			for _, v := range got[0].Votes {
				if v == chain.ForBlock {
					signed++
				}
			}
			require.Equal(t, 3, signed, "one node had been stopped")
		}
		require.EqualValues(t, 4, f.asked.Load(), "three commits and one set")
	})

	t.Run("a set that isn't the header's is refused", func(t *testing.T) {
		t.Parallel()
		lie := strings.Replace(recorded(t, "validators"), `"voting_power":"100"`, `"voting_power":"101"`, 1)
		require.NotEqual(t, recorded(t, "validators"), lie)
		f := newFakeNode(t, map[string]string{"commit": recorded(t, "commit"), "validators": lie})
		_, err := New().Commits(t.Context(), f.Endpoint, height, height)
		require.ErrorIs(t, err, ErrGarbage)
		require.ErrorContains(t, err, "hash")
	})

	t.Run("signatures that are not of the validator at their index are refused", func(t *testing.T) {
		t.Parallel()
		var at []int
		for i, s := range commit.signatures {
			if s.vote != chain.Absent {
				at = append(at, i)
			}
		}
		x, y := commit.signatures[at[0]].address, commit.signatures[at[1]].address
		swapped := strings.NewReplacer(`"validator_address":"`+x, `"validator_address":"`+y, `"validator_address":"`+y, `"validator_address":"`+x).Replace(recorded(t, "commit"))
		f := newFakeNode(t, map[string]string{"commit": swapped, "validators": recorded(t, "validators")})
		_, err := New().Commits(t.Context(), f.Endpoint, height, height)
		require.ErrorIs(t, err, ErrGarbage)
		require.ErrorContains(t, err, "but the validator there is")
	})

	t.Run("a signature that its validator didn't make is refused", func(t *testing.T) {
		t.Parallel()
		for what, change := range map[string][2]string{
			"for another chain": {`"chain_id":"recorded-1"`, `"chain_id":"recorded-2"`},
			"in another round":  {`"round":0`, `"round":1`},
			"for another block": {fmt.Sprintf(`"block_id":{"hash":"%X"`, commit.block.hash), `"block_id":{"hash":"` + strings.Repeat("AB", 32) + `"`},
			"as a vote for nil": {`"block_id_flag":2`, `"block_id_flag":3`},
		} {
			forged := strings.Replace(recorded(t, "commit"), change[0], change[1], 1)
			require.NotEqual(t, recorded(t, "commit"), forged, what)
			f := newFakeNode(t, map[string]string{"commit": forged, "validators": recorded(t, "validators")})
			_, err := New().Commits(t.Context(), f.Endpoint, height, height)
			require.ErrorIs(t, err, ErrGarbage, what)
			require.ErrorContains(t, err, "is wrong", what)
		}
	})

	t.Run("the latest block's commit isn't final", func(t *testing.T) {
		t.Parallel()
		f := newFakeNode(t, map[string]string{"commit": strings.Replace(recorded(t, "commit"), `"canonical":true`, `"canonical":false`, 1), "validators": recorded(t, "validators")})
		_, err := New().Commits(t.Context(), f.Endpoint, height, height)
		require.ErrorIs(t, err, ErrFutureHeight)
		require.True(t, fault.Is(err, fault.Transient))
	})

	t.Run("an answer for another height is refused", func(t *testing.T) {
		t.Parallel()
		f := newFakeNode(t, map[string]string{"commit": recorded(t, "commit"), "validators": recorded(t, "validators")})
		_, err := New().Commits(t.Context(), f.Endpoint, height-1, height)
		require.ErrorIs(t, err, ErrGarbage)
		_, err = New().Set(t.Context(), f.Endpoint, height+1)
		require.ErrorIs(t, err, ErrGarbage)
	})

	t.Run("heights that make no sense are a caller's mistake", func(t *testing.T) {
		t.Parallel()
		for _, h := range [][2]int64{{0, 5}, {5, 4}, {-3, 2}, {1, 1 << 40}} {
			_, err := New().Commits(t.Context(), "http://127.0.0.1:1", h[0], h[1])
			require.True(t, fault.Is(err, fault.Unexpected), "%v", err)
		}
	})
}

func TestPagesThatDoNotAddUp(t *testing.T) {
	t.Parallel()
	set, err := parseValidators(result(t, "validators"))
	require.NoError(t, err)
	for total, says := range map[string]string{"3": "4 validators of a total of 3", "8": "twice", "20000": "total"} {
		f := newFakeNode(t, map[string]string{"validators": strings.Replace(recorded(t, "validators"), `"total":"4"`, `"total":"`+total+`"`, 1)})
		_, err := New().Set(t.Context(), f.Endpoint, set.height)
		require.ErrorIs(t, err, ErrGarbage, total)
		require.ErrorContains(t, err, says)
	}
}

func TestSetCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newSetCache()
	for i := range 3 * maxSets {
		c.put(fmt.Sprint(i), nil)
		c.put(fmt.Sprint(i), nil)
	}
	require.Len(t, c.byKey, maxSets)
	_, ok := c.get("0")
	require.False(t, ok)
	_, ok = c.get(fmt.Sprint(3*maxSets - 1))
	require.True(t, ok)
	_, err := hashSet([]member{{keyType: "tendermint/PubKeyBls12381"}})
	require.ErrorIs(t, err, errUnhashable)
}

// A parser of foreign bytes never panics, and takes only what it could give.
func FuzzParsers(f *testing.F) {
	for _, name := range []string{"status", "net_info", "validators", "commit", "block", "block_results", "consensus_params", "query", "broadcast", "future", "no_tx"} {
		f.Add([]byte(recorded(f, name)))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","result":{}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","result":{"validators":[null],"count":"1","total":"1","block_height":"1"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, refusal, err := parseEnvelope(body)
		if refusal != nil {
			u, _ := URL("http://127.0.0.1:1")
			if refused(u, "tx", *refusal) == nil {
				t.Fatal("a refusal without error")
			}
		}
		if err != nil || refusal != nil {
			return
		}
		if n, err := parseStatus(raw); err == nil && (n.Height < 0 || n.VotingPower < 0 || n.ChainID == "") {
			t.Fatalf("%+v", n)
		}
		_, _ = parseNetInfo(raw)
		if p, err := parseValidators(raw); err == nil {
			for _, m := range p.members {
				if m.Power <= 0 || m.Power > maxPower || len(m.Address) != 2*addressLen {
					t.Fatalf("%+v", m)
				}
			}
			_, _ = hashSet(p.members)
		}
		_, _ = parseCommit(raw)
		_, _ = parseQuery(raw)
		_, _ = parseBroadcast(raw)
		_, _ = parseTx(raw)
		_, _ = parseBlock(raw)
		_, _ = parseBlockResults(raw)
		_, _ = parseConsensusParams(raw)
	})
}
