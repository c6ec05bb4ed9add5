//go:build integration

package network_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

var crds = filepath.Join("..", "..", "manifests", "crds")

var applyOnce sync.Once

// site is a namespace with one ValidatorNetwork named demo.
type site struct {
	cp *kubetest.ControlPlane
	ns string
}

func newSite(t *testing.T) site {
	t.Helper()
	cp := kubetest.Start(t)
	applyOnce.Do(func() { cp.ApplyCRDs(t, crds) })
	s := site{cp, cp.NewNamespace(t, nil)}
	s.create(t, "demo")
	return s
}

func (s site) objects() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(s.cp.Config()).Resource(v1alpha1.NetworkResource).Namespace(s.ns)
}

func (s site) create(t *testing.T, name string) {
	t.Helper()
	_, err := s.objects().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollcall.dev/v1alpha1", "kind": "ValidatorNetwork", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"validators": int64(4), "stake": map[string]any{"amount": "1stake"},
			"chain":  map[string]any{"chainID": "test-1", "rpc": "http://{pod}"},
			"safety": map[string]any{"maxValidators": int64(1000)},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// store is one writer's; agent tells its requests apart in the audit log.
func (s site) store(t *testing.T, agent string, edit ...func(*rest.Config)) *network.Store {
	t.Helper()
	config := s.cp.Config()
	config.UserAgent = agent
	for _, e := range edit {
		e(config)
	}
	c, err := kube.New(config, s.ns)
	require.NoError(t, err)
	st, err := network.Find(t.Context(), c, "demo")
	require.NoError(t, err)
	return st
}

func (s site) get(t *testing.T) *v1alpha1.ValidatorNetwork {
	t.Helper()
	n, err := s.store(t, "onlooker").Get(t.Context())
	require.NoError(t, err)
	return n
}

func TestFindTheOnlyNetworkOfANamespace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := kube.New(s.cp.Config(), s.ns)
	require.NoError(t, err)
	st, err := network.Find(t.Context(), c, "")
	require.NoError(t, err)
	require.Equal(t, "demo", st.Name())

	s.create(t, "other")
	_, err = network.Find(t.Context(), c, "")
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "has several ValidatorNetworks: demo, other; set ROLLCALL_NETWORK")

	c.Namespace = s.cp.NewNamespace(t, nil)
	_, err = network.Find(t.Context(), c, "")
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "there is no ValidatorNetwork in namespace "+c.Namespace)
	st, err = network.Find(t.Context(), c, "nowhere")
	require.NoError(t, err, "a given name is believed")
	_, err = st.Get(t.Context())
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "ValidatorNetwork "+c.Namespace+"/nowhere doesn't exist; check ROLLCALL_NETWORK")
}

func TestTwoWritersUnderConflictBothLand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const writers, writes = 2, 6
	var wg sync.WaitGroup
	errs := make(chan error, writers*writes)
	for w := range writers {
		st := s.store(t, fmt.Sprintf("writer-%d-%s", w, s.ns))
		wg.Go(func() {
			for i := range writes {
				_, err := st.UpdateStatus(t.Context(), 7, func(n *v1alpha1.ValidatorNetwork) bool {
					e := network.Ensure(n, w*writes+i)
					e.Address = fmt.Sprintf("ADDR%d", e.Ordinal)
					return true
				})
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	n := s.get(t)
	require.Len(t, n.Status.Roster, writers*writes, "no write undid another")
	for i, e := range n.Status.Roster {
		require.EqualValues(t, i, e.Ordinal)
		require.Equal(t, fmt.Sprintf("ADDR%d", i), e.Address)
	}
	require.EqualValues(t, 7, n.Status.Token)
}

// between runs something after a store's next read and before its write.
type between struct {
	next http.RoundTripper
	do   func()
	once sync.Once
}

func (b *between) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		b.once.Do(b.do)
	}
	return b.next.RoundTrip(r)
}

func (b *between) wrap(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { b.next = next; return b })
}

func TestAConflictIsReadAgainAndRetried(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := s.store(t, "other")
	late := s.store(t, "late", (&between{do: func() {
		_, err := other.SetWanted(context.WithoutCancel(t.Context()), 7, 9)
		require.NoError(t, err)
	}}).wrap)
	calls := 0
	n, err := late.UpdateStatus(t.Context(), 7, func(n *v1alpha1.ValidatorNetwork) bool {
		calls++
		n.Status.Height = int64(n.Spec.Validators)
		return true
	})
	require.NoError(t, err)
	require.Equal(t, 2, calls, "the change is made again on what is there now")
	require.EqualValues(t, 9, n.Status.Height)
	require.EqualValues(t, 9, n.Spec.Validators)
}

func TestAFencedWriterIsToldThatItLostTheLock(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	change := func(n *v1alpha1.ValidatorNetwork) bool { n.Status.Height++; return true }
	newer, older := s.store(t, "newer"), s.store(t, "older")
	_, err := newer.UpdateStatus(t.Context(), 8, change)
	require.NoError(t, err)
	for what, write := range map[string]func() error{
		"status": func() error { _, err := older.UpdateStatus(t.Context(), 7, change); return err },
		"wish":   func() error { _, err := older.SetWanted(t.Context(), 7, 5); return err },
	} {
		err := write()
		require.Equal(t, fault.LockLost, fault.CodeOf(err), "%s: %v", what, err)
		require.ErrorContains(t, err, "a run with token 8 has written it since, this run has 7")
	}
	require.EqualValues(t, 1, s.get(t).Status.Height)
	token, err := older.Token(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 8, token)
}

func TestAWriterThatIsFencedBetweenReadAndWriteIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	newer := s.store(t, "newer")
	late := s.store(t, "late", (&between{do: func() {
		_, err := newer.UpdateStatus(context.WithoutCancel(t.Context()), 8, func(n *v1alpha1.ValidatorNetwork) bool { n.Status.Height = 100; return true })
		require.NoError(t, err)
	}}).wrap)
	_, err := late.UpdateStatus(t.Context(), 7, func(n *v1alpha1.ValidatorNetwork) bool { n.Status.Height = 1; return true })
	require.Equal(t, fault.LockLost, fault.CodeOf(err), "%v", err)
	require.EqualValues(t, 100, s.get(t).Status.Height)
}

// The API server's own fence is what a client without the check runs into.
func TestTheServersFenceMeansALostLock(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.store(t, "newer").UpdateStatus(t.Context(), 8, func(n *v1alpha1.ValidatorNetwork) bool { n.Status.Height = 1; return true })
	require.NoError(t, err)
	blind := s.store(t, "blind", func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return forgetful{next} })
	})
	_, err = blind.UpdateStatus(t.Context(), 7, func(n *v1alpha1.ValidatorNetwork) bool { n.Status.Height = 2; return true })
	require.Equal(t, fault.LockLost, fault.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "refused by the API server")
}

// forgetful hides tokens in what it reads.
type forgetful struct{ next http.RoundTripper }

func (f forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet {
		return resp, err
	}
	var o map[string]any
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(o, "status", "token")
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = readCloser{strings.NewReader(string(b))}, int64(len(b))
	resp.Header.Del("Content-Length")
	return resp, nil
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// fleet is a network of 1,000 validators that are proven in consensus, all
// fields as long as they get, with a full history of failures.
func fleet(n *v1alpha1.ValidatorNetwork) {
	n.Status.Roster = nil
	for o := range 1000 {
		n.Status.Roster = append(n.Status.Roster, v1alpha1.RosterEntry{
			Ordinal: int32(o), Address: fmt.Sprintf("%040X", o), Operator: fmt.Sprintf("cosmosvaloper1%038d", o), State: "Bonded",
			Signing: true, Power: 1_000_000, JoinedHeight: 123_456_789,
		})
	}
	for len(n.Status.History) < 20 {
		n.Status.History = append(n.Status.History, v1alpha1.Operation{
			Type: "scale-up", Run: v1alpha1.RunReference{UID: fmt.Sprintf("%036d", len(n.Status.History))}, Message: strings.Repeat("x", 1024),
		})
	}
}

func TestAThousandValidatorsStaySmallAndCheap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := "saver-" + s.ns
	st := s.store(t, agent)
	since := time.Now()
	_, err := st.UpdateStatus(t.Context(), 1, func(n *v1alpha1.ValidatorNetwork) bool { fleet(n); return true })
	require.NoError(t, err)
	_, err = st.UpdateStatus(t.Context(), 1, func(n *v1alpha1.ValidatorNetwork) bool { n.Status.Height++; return true })
	require.NoError(t, err)
	_, err = st.UpdateStatus(t.Context(), 1, func(*v1alpha1.ValidatorNetwork) bool { return false })
	require.NoError(t, err)

	var verbs []string
	for _, r := range s.cp.Requests(t, since, func(e kubetest.AuditEvent) bool { return e.UserAgent == agent }) {
		verbs = append(verbs, r.Verb)
	}
	require.Equal(t, []string{"get", "patch", "get", "patch", "get"}, verbs, "two requests a save, one when there is nothing to save")

	u, err := s.objects().Get(t.Context(), "demo", metav1.GetOptions{})
	require.NoError(t, err)
	raw, err := json.Marshal(u.Object)
	require.NoError(t, err)
	require.Less(t, len(raw), 256<<10, "who wrote which field included")
	t.Logf("%d bytes", len(raw))
}

func TestEventsAreValidAndAboutTheNetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	st := s.store(t, "teller")
	n, err := st.UpdateStatus(t.Context(), 1, func(n *v1alpha1.ValidatorNetwork) bool {
		network.Begin(n, v1alpha1.Operation{Type: "scale-up", Run: v1alpha1.RunReference{UID: "u", Name: strings.Repeat("x", 253)}}, time.Now())
		return true
	})
	require.NoError(t, err)
	require.NoError(t, st.Event(t.Context(), n, network.Normal, "Staked", "stake", "validator 4 staked"))
	long := strings.Repeat("€", 2000)
	require.NoError(t, st.Event(t.Context(), n, network.Warning, "Refused", "plan", long))
	n.Status.LastOperation = nil
	require.NoError(t, st.Event(t.Context(), n, network.Normal, "Verified", "verify-consensus", "no run"))

	c, err := kube.New(s.cp.Config(), s.ns)
	require.NoError(t, err)
	l, err := c.Kube.EventsV1().Events(s.ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	byReason := map[string]eventsv1.Event{}
	for _, e := range l.Items {
		byReason[e.Reason] = e
		require.Equal(t, "ValidatorNetwork", e.Regarding.Kind)
		require.Equal(t, "demo", e.Regarding.Name)
		require.Equal(t, n.UID, e.Regarding.UID)
		require.Equal(t, "rollcall.dev/rollcall", e.ReportingController)
	}
	require.Len(t, byReason, 3)
	require.Equal(t, "validator 4 staked", byReason["Staked"].Note)
	require.Equal(t, "stake", byReason["Staked"].Action)
	require.Equal(t, "Warning", byReason["Refused"].Type)
	require.LessOrEqual(t, len(byReason["Refused"].Note), 1024)
	require.Regexp(t, `^€+ \.\.\.$`, byReason["Refused"].Note)
}

// A newer Rollcall's definition has more fields; this version must not drop them.
func TestFieldsOfNewerVersionsSurvive(t *testing.T) {
	t.Parallel()
	cp := kubetest.Start(t, kubetest.Dedicated())
	cp.ApplyCRDs(t, crds)
	definitions := dynamic.NewForConfigOrDie(cp.Config()).
		Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch := []byte(`[
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/future","value":{"type":"string"}},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/future","value":{"type":"string"}},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/roster/items/properties/future","value":{"type":"string"}}
	]`)
	_, err := definitions.Patch(t.Context(), "validatornetworks.rollcall.dev", types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	s := site{cp, cp.NewNamespace(t, nil)}
	s.create(t, "demo")
	newer := []byte(`{"spec":{"future":"s"},"status":{"future":"t","token":3,"roster":[{"ordinal":0,"address":"A","future":"r"}]}}`)
	// The new schema is served a moment after it is accepted.
	require.Eventually(t, func() bool {
		if _, err := s.objects().Patch(t.Context(), "demo", types.MergePatchType, newer, metav1.PatchOptions{}); err != nil {
			return false
		}
		u, err := s.objects().Patch(t.Context(), "demo", types.MergePatchType, newer, metav1.PatchOptions{}, "status")
		if err != nil {
			return false
		}
		got, _, _ := unstructured.NestedString(u.Object, "status", "future")
		return got == "t"
	}, 30*time.Second, 100*time.Millisecond)

	st := s.store(t, "older version")
	_, err = st.SetWanted(t.Context(), 4, 5)
	require.NoError(t, err)
	_, err = st.UpdateStatus(t.Context(), 4, func(n *v1alpha1.ValidatorNetwork) bool {
		network.Ensure(n, 0).Power = 7
		network.Ensure(n, 1).Address = "B"
		return true
	})
	require.NoError(t, err)
	u, err := s.objects().Get(t.Context(), "demo", metav1.GetOptions{})
	require.NoError(t, err)
	for want, path := range map[string][]string{"s": {"spec", "future"}, "t": {"status", "future"}} {
		got, _, err := unstructured.NestedString(u.Object, path...)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	roster, _, err := unstructured.NestedSlice(u.Object, "status", "roster")
	require.NoError(t, err)
	require.Equal(t, []any{
		map[string]any{"ordinal": int64(0), "address": "A", "state": nil, "power": int64(7), "future": "r"},
		map[string]any{"ordinal": int64(1), "address": "B", "state": "Unknown"},
	}, withNil(roster, "state"))
}

// withNil gives the first entry an explicit nil where it has nothing.
func withNil(list []any, key string) []any {
	if e := list[0].(map[string]any); e[key] == nil {
		e[key] = nil
	}
	return list
}

func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	st := s.store(t, "nobody", func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + s.ns + ":nobody"}
	})
	_, err := st.Get(t.Context())
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.True(t, apierrors.IsForbidden(err))
	require.ErrorContains(t, err, "get validatornetworks.rollcall.dev "+s.ns+"/demo")
	require.ErrorContains(t, err, "grant the right to get validatornetworks.rollcall.dev in namespace "+s.ns)
}
