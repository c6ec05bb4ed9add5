package cosmos

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/comet"
)

// fakeNode is a stand-in for a node, for what a real one can't be made to do at
// will: lose an answer, drop a transaction, refuse with a chosen code. It makes
// a block with each status that it is asked for, and puts a transaction that it
// accepted into the next one, unless a script says otherwise. It runs nothing
// and checks nothing: the real chain's tests do that.
type fakeNode struct {
	chain.Endpoint
	t *testing.T

	mu       sync.Mutex
	chainID  string
	height   int64
	still    bool // no more blocks
	sequence uint64
	// broadcasts is what happens to each broadcast, in order; then accept.
	broadcasts []reply
	// outcomes is what each transaction results in, in order; then success.
	outcomes  []outcome
	received  []string // hashes of the broadcasts
	pending   []string
	included  map[string]comet.TxResult
	simulated []outcome // results of rehearsals, in order; then success
	record    *validator
	own       int64
	unbonding int // entries
}

// reply is what a node does with a broadcast.
type reply struct {
	code      uint32
	log       string
	keep      bool // take the transaction, whatever is answered
	hangUp    bool // close the connection without an answer
	takeOther bool // another transaction of the account gets the sequence number
}

type outcome struct {
	codespace string
	code      uint32
	log       string
	drop      bool // never include it
}

func newFake(t *testing.T) *fakeNode {
	t.Helper()
	f := &fakeNode{t: t, chainID: "fake-1", height: 10, sequence: 7, included: map[string]comet.TxResult{}, own: 50000000}
	op := mustOperator(t, nil, words12)
	f.record = &validator{operator: op.valoper, pubKey: op.consensus, status: bondUnbonded, tokens: big.NewInt(50000000), minSelf: big.NewInt(1)}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	f.Endpoint = chain.Endpoint(server.URL)
	return f
}

// adapter is one that asks the fakes in their order, quickly.
func adapterFor(t *testing.T, fakes ...*fakeNode) *Adapter {
	t.Helper()
	var endpoints []chain.Endpoint
	for _, f := range fakes {
		endpoints = append(endpoints, f.Endpoint)
	}
	a, err := New(map[string]string{"gasPrice": "0stake"}, "fake-1", endpoints)
	require.NoError(t, err)
	a.rpc = comet.New(comet.WithTimeout(2 * time.Second))
	a.pace = pace{poll: time.Millisecond, still: 300 * time.Millisecond, jail: 200 * time.Millisecond}
	return a
}

func (f *fakeNode) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.received...)
}

func (f *fakeNode) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var request struct {
		Method string
		Params struct {
			Path, Data string
			Tx, Hash   []byte
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	answer := func(result any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": 1, "result": result})
	}
	switch request.Method {
	case "status":
		if !f.still {
			f.block()
		}
		answer(map[string]any{
			"node_info": map[string]any{"id": "ab", "network": f.chainID, "version": "fake"},
			"sync_info": map[string]any{
				"latest_app_hash": "AB", "latest_block_height": strconv.FormatInt(f.height, 10),
				"latest_block_time": time.Unix(1700000000+f.height, 0).UTC(), "catching_up": false,
			},
			"validator_info": map[string]any{"address": "8A5875C75081AEFB603A23178350AE4542803C24", "voting_power": "0"},
		})
	case "net_info":
		answer(map[string]any{"n_peers": "1"})
	case "abci_query":
		data, _ := hex.DecodeString(request.Params.Data)
		answer(map[string]any{"response": f.query(request.Params.Path, data)})
	case "broadcast_tx_sync":
		f.broadcast(w, request.Params.Tx, answer)
	case "tx":
		hash := fmt.Sprintf("%X", request.Params.Hash)
		if in, ok := f.included[hash]; ok {
			answer(map[string]any{"hash": hash, "height": fmt.Sprint(in.Height), "tx_result": map[string]any{
				"code": in.Code, "codespace": in.Codespace, "log": in.Log, "gas_wanted": "1", "gas_used": "1",
			}})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": 1, "error": map[string]any{"code": -32603, "message": "Internal error", "data": "tx (" + hash + ") not found"}})
	default:
		f.t.Errorf("the fake knows no %s", request.Method)
	}
}

func (f *fakeNode) block() {
	f.height++
	for _, hash := range f.pending {
		o := outcome{}
		if len(f.outcomes) > 0 {
			o, f.outcomes = f.outcomes[0], f.outcomes[1:]
		}
		if o.drop {
			continue
		}
		if o.code != codeSequence {
			f.sequence++
		}
		if o.code == 0 {
			f.own = 0
		}
		f.included[hash] = comet.TxResult{Height: f.height, Code: o.code, Codespace: o.codespace, Log: o.log}
	}
	f.pending = nil
}

func (f *fakeNode) broadcast(w http.ResponseWriter, tx []byte, answer func(any)) {
	hash := comet.Hash(tx)
	f.received = append(f.received, hash)
	r := reply{keep: true}
	if len(f.broadcasts) > 0 {
		r, f.broadcasts = f.broadcasts[0], f.broadcasts[1:]
	}
	if r.keep {
		f.pending = append(f.pending, hash)
	}
	if r.takeOther {
		f.sequence++
	}
	if r.hangUp {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return
	}
	answer(map[string]any{"code": r.code, "codespace": map[bool]string{true: "sdk"}[r.code != 0], "log": r.log, "hash": hash})
}

func (f *fakeNode) query(path string, request []byte) map[string]any {
	ok := func(value message) map[string]any {
		return map[string]any{"code": 0, "height": fmt.Sprint(f.height), "value": base64.StdEncoding.EncodeToString(value)}
	}
	no := func(codespace string, code uint32, log string) map[string]any {
		return map[string]any{"code": code, "codespace": codespace, "log": log, "height": "0"}
	}
	op := mustOperator(f.t, nil, words12)
	one := func(m message) message { return message(nil).sub(1, m) }
	switch path {
	case pathParams:
		return ok(one(message(nil).sub(1, message(nil).uint(1, 20)).uint(2, 20).uint(3, 7).str(5, "stake").str(6, "0")))
	case pathValidator:
		v := f.record
		jailed := uint64(0)
		if v.jailed {
			jailed = 1
		}
		return ok(one(message(nil).str(1, v.operator).sub(2, packAny(urlEd25519, message(nil).bytes(1, v.pubKey))).
			uint(3, jailed).uint(4, v.status).str(5, v.tokens.String()).str(11, v.minSelf.String())))
	case pathDelegation:
		if f.own == 0 {
			return no(spaceSDK, codeNotFound, "not found")
		}
		return ok(one(message(nil).sub(1, message(nil).str(1, op.account)).sub(2, coin("stake", big.NewInt(f.own)))))
	case pathUnbonding:
		if f.unbonding == 0 {
			return no(spaceSDK, codeNotFound, "not found")
		}
		var u message
		for range f.unbonding {
			u = u.sub(3, message(nil).uint(1, 5).sub(2, message(nil).uint(1, 1700000100)).str(4, "1"))
		}
		return ok(one(u))
	case pathAccount:
		base := message(nil).str(1, op.account).uint(3, 5).uint(4, f.sequence)
		return ok(one(packAny("/cosmos.auth.v1beta1.BaseAccount", base)))
	case pathSimulate:
		if len(f.simulated) > 0 {
			o := f.simulated[0]
			f.simulated = f.simulated[1:]
			if o.code != 0 {
				return no(o.codespace, o.code, o.log)
			}
		}
		return ok(message(`{"gas_info":{"gas_wanted":"0","gas_used":"100000"}}`))
	}
	return no(spaceSDK, codeNotFound, path+" not found")
}
