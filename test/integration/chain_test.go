//go:build integration

package integration

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/test/kubetest"
	"github.com/rollcall-dev/rollcall/test/localnet"
)

// gateway hands /ORDINAL to the real node of that validator and counts the
// transactions that are sent.
type gateway struct {
	*httptest.Server
	sent atomic.Int64
}

func newGateway(t *testing.T, n *localnet.Network) *gateway {
	t.Helper()
	g := &gateway{}
	var nodes []*httputil.ReverseProxy
	for i := range n.Size() {
		target, err := url.Parse(n.RPC(i))
		require.NoError(t, err)
		nodes = append(nodes, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = target.Scheme, target.Host, "/"
			r.Out.Host = target.Host
		}})
	}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		if err != nil || i < 0 || i >= len(nodes) {
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if bytes.Contains(body, []byte(`"broadcast_tx`)) {
			g.sent.Add(1)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		nodes[i].ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

// onChain is a world whose validators are the nodes of a real chain.
func onChain(t *testing.T) (*world, *localnet.Network, *gateway) {
	t.Helper()
	kubetest.Start(t) // first: it needs both processors while it starts
	n := localnet.Start(t, localnet.Options{Genesis: 4, Accounts: 5})
	g := newGateway(t, n)
	var secrets []map[string][]byte
	for i := range n.Size() {
		k := n.Keys(i)
		secrets = append(secrets, map[string][]byte{"priv_validator_key.json": k.PrivValidatorKey, "operator.mnemonic": []byte(k.Mnemonic)})
	}
	w := newWorld(t, setup{chainID: n.ChainID, rpc: g.URL + "/{ordinal}", keys: secrets, network: func(spec map[string]any) {
		spec["safety"] = map[string]any{"minValidators": int64(3), "faultBudget": int64(0)}
	}})
	for o := range 4 {
		w.declareReady(t, o)
	}
	return w, n, g
}

// One chain serves all of it: starting one takes longer than what is tested.
func TestStepsOnARealChain(t *testing.T) {
	w, n, g := onChain(t)
	n.WaitHeight(0, 12) // so that every validator has a full window of signatures

	t.Run("a planned dry run writes nothing", func(t *testing.T) {
		before, since := w.network(t).ResourceVersion, time.Now()
		e := w.must(t, "plan", "", map[string]string{"VALIDATORS": "5", "DRY_RUN": "true"})
		require.Contains(t, e.message.Message, "scale-up from 4 to 5: 1 pods to start, 1 transactions in 1 batches")
		require.Contains(t, e.stdout, "Pods to start: validator-4")
		for _, r := range w.requests(t, since, func(e kubetest.AuditEvent) bool { return e.Verb != "get" && e.Verb != "list" }) {
			require.Fail(t, "a dry run wrote", "%s %s", r.Verb, r.RequestURI)
		}
		require.Equal(t, before, w.network(t).ResourceVersion)
		require.Zero(t, g.sent.Load())
	})

	t.Run("a plan of the wrong direction is refused", func(t *testing.T) {
		e := w.run(t, "run", "direction", map[string]string{"OPERATION": "scale-down", "VALIDATORS": "5"})
		require.Equal(t, 2, e.code, e.log)
		require.Contains(t, e.message.Message, "plan: scale-down to 5: only 4 validators run; use scale-up")
		w.requireFreeLock(t)
		require.EqualValues(t, 4, w.network(t).Spec.Validators)
	})

	t.Run("a pod whose key is in consensus isn't stopped", func(t *testing.T) {
		env := map[string]string{"OPERATION": "scale-down", "VALIDATORS": "3"}
		w.must(t, "acquire-lock", "guard", env)
		e := w.run(t, "scale", "guard", env)
		require.Equal(t, 5, e.code, e.log)
		require.Contains(t, e.message.Message, "the consensus set still has validator 3 (power 100) of the pods to be stopped; 400 of 400 power signs")
		require.Equal(t, 4, w.replicas(t))
		last := w.network(t).Status.LastOperation
		require.Equal(t, v1alpha1.OperationFailed, last.Phase)
		require.Equal(t, "scale", last.Step)
		w.must(t, "release-lock", "guard", env)
		w.requireFreeLock(t)
	})

	t.Run("another chain's node is refused", func(t *testing.T) {
		other := newWorld(t, setup{chainID: "other-1", rpc: g.URL + "/{ordinal}"})
		for o := range 4 {
			other.declareReady(t, o)
		}
		e := other.run(t, "plan", "", map[string]string{"VALIDATORS": "5", "DRY_RUN": "true"})
		require.Equal(t, 2, e.code, e.log)
		require.Contains(t, e.message.Message, `/0 is a node of chain "`+n.ChainID+`", but the network's chain is "other-1"`)
	})

	t.Run("a signal stops a run, which frees the lock and says what it waited for", func(t *testing.T) {
		p := w.start(t, "run", "stopped", map[string]string{"VALIDATORS": "5"})
		p.awaitPod(t, 4, true)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		e := p.wait(t)
		require.Equal(t, 75, e.code, e.log)
		require.Contains(t, e.message.Message, "run again to resume")
		w.requireFreeLock(t)
		last := w.network(t).Status.LastOperation
		require.Equal(t, v1alpha1.OperationFailed, last.Phase)
		require.Contains(t, []string{"scale", "wait-ready"}, last.Step)
		require.Zero(t, g.sent.Load())
	})

	t.Run("the next run resumes, scales up and proves it", func(t *testing.T) {
		p := w.start(t, "run", "up", map[string]string{"VALIDATORS": "5"})
		p.awaitPod(t, 4, true)
		n.StartNode(4)
		w.declareReady(t, 4)
		e := p.wait(t)
		require.Zero(t, e.code, e.log)
		require.EqualValues(t, 1, g.sent.Load(), "one transaction")
		w.requireFreeLock(t)
		net := w.network(t)
		require.EqualValues(t, 5, net.Spec.Validators)
		require.EqualValues(t, 5, net.Status.Bonded)
		require.EqualValues(t, 5, net.Status.Signing)
		require.Equal(t, v1alpha1.OperationSucceeded, net.Status.LastOperation.Phase)
		require.Equal(t, n.Node(4).ConsensusAddress, net.Status.Roster[4].Address)
		require.Equal(t, n.Node(4).Operator, net.Status.Roster[4].Operator)
		powers, err := n.Power(t.Context(), 0, net.Status.Roster[4].JoinedHeight)
		require.NoError(t, err)
		require.EqualValues(t, 100, powers[n.Node(4).ConsensusAddress], "it joined when the record says")
		powers, err = n.Power(t.Context(), 0, net.Status.Roster[4].JoinedHeight-1)
		require.NoError(t, err)
		require.NotContains(t, powers, n.Node(4).ConsensusAddress)
	})

	t.Run("run again changes nothing", func(t *testing.T) {
		before := w.network(t)
		e := w.must(t, "run", "again", map[string]string{"VALIDATORS": "5"})
		require.Equal(t, "0", e.message.Outputs["transactions"])
		require.EqualValues(t, 1, g.sent.Load())
		after := w.network(t)
		require.Equal(t, before.Status.Roster[4].JoinedHeight, after.Status.Roster[4].JoinedHeight)
		require.Equal(t, 5, w.replicas(t))
		w.requireFreeLock(t)
	})

	t.Run("run scales down, out of consensus first", func(t *testing.T) {
		p := w.start(t, "run", "down", map[string]string{"OPERATION": "scale-down", "VALIDATORS": "4"})
		p.awaitPod(t, 4, false)
		// The pod is gone: the key must be out of the set by now.
		height := n.Height(0)
		powers, err := n.Power(t.Context(), 0, height)
		require.NoError(t, err)
		require.NotContains(t, powers, n.Node(4).ConsensusAddress)
		n.StopNode(4, syscall.SIGTERM)
		e := p.wait(t)
		require.Zero(t, e.code, e.log)
		require.EqualValues(t, 2, g.sent.Load())
		w.requireFreeLock(t)
		net := w.network(t)
		require.EqualValues(t, 4, net.Spec.Validators)
		require.EqualValues(t, 4, net.Status.Bonded)
		require.Equal(t, 4, w.replicas(t))
		entry := net.Status.Roster[4]
		require.Contains(t, []v1alpha1.BondState{"Unstaking", "Unstaked"}, entry.State)
		powers, err = n.Power(t.Context(), 0, entry.LeftHeight-1)
		require.NoError(t, err)
		require.Contains(t, powers, n.Node(4).ConsensusAddress)
		powers, err = n.Power(t.Context(), 0, entry.LeftHeight)
		require.NoError(t, err)
		require.NotContains(t, powers, n.Node(4).ConsensusAddress, "it left when the record says")
	})
}

// awaitPod waits until a validator's pod exists, or is gone, while the step runs.
func (p *process) awaitPod(t *testing.T, ordinal int, exists bool) {
	t.Helper()
	name, pods := "validator-"+strconv.Itoa(ordinal), p.w.admin().CoreV1().Pods(p.w.ns)
	for {
		_, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			if exists == (err == nil) {
				return
			}
			err = nil
		}
		require.NoError(t, err)
		select {
		case <-p.done:
			require.FailNow(t, "the step ended early", "while pod %s was waited for:\n%s", name, &p.err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
