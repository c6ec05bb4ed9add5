//go:build integration

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

const crdDir = "../../manifests/crds"

var applyOnce sync.Once

// api is a namespace of a real API server that knows the custom resources.
type api struct {
	cp *kubetest.ControlPlane
	ns string
	c  dynamic.Interface
}

func newAPI(t *testing.T) api {
	t.Helper()
	cp := kubetest.Start(t)
	applyOnce.Do(func() { cp.ApplyCRDs(t, crdDir) })
	c, err := dynamic.NewForConfig(cp.Config())
	require.NoError(t, err)
	return api{cp, cp.NewNamespace(t, nil), c}
}

func (a api) networks() dynamic.ResourceInterface {
	return a.c.Resource(v1alpha1.NetworkResource).Namespace(a.ns)
}

func (a api) locks() dynamic.ResourceInterface {
	return a.c.Resource(v1alpha1.LockResource).Namespace(a.ns)
}

// network is a valid one; edits are made on its JSON.
func network(name string, edits ...func(map[string]any)) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": "rollcall.dev/v1alpha1", "kind": "ValidatorNetwork", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"validators": int64(4),
			"chain":      map[string]any{"chainID": "test-1", "rpc": "http://{pod}.validator:26657"},
			"stake":      map[string]any{"amount": "100000000stake"},
		},
	}
	for _, e := range edits {
		e(o)
	}
	return &unstructured.Unstructured{Object: o}
}

func lock(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollcall.dev/v1alpha1", "kind": "DeploymentLock", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func holder(uid string) map[string]any {
	return map[string]any{"run": map[string]any{"uid": uid}}
}

// set returns an edit of the value at a dotted path.
func set(path string, value any) func(map[string]any) {
	return func(o map[string]any) {
		if err := unstructured.SetNestedField(o, value, strings.Split(path, ".")...); err != nil {
			panic(fmt.Sprintf("set %s: %v", path, err))
		}
	}
}

func remove(path string) func(map[string]any) {
	return func(o map[string]any) { unstructured.RemoveNestedField(o, strings.Split(path, ".")...) }
}

func TestNetworkDefaults(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	u, err := a.networks().Create(t.Context(), network("demo"), metav1.CreateOptions{})
	require.NoError(t, err)
	n := &v1alpha1.ValidatorNetwork{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n))
	require.Equal(t, "cosmos", n.Spec.Chain.Adapter)
	require.Equal(t, "validator", n.Spec.Workload.StatefulSet)
	require.Equal(t, v1alpha1.KeysSpec{Secret: "{pod}-keys", ConsensusEntry: "priv_validator_key.json", OperatorEntry: "operator.mnemonic"}, n.Spec.Keys)
	require.EqualValues(t, 4, n.Spec.Safety.MinValidators)
	require.EqualValues(t, 16, n.Spec.Safety.MaxValidators)
	require.EqualValues(t, 1, *n.Spec.Safety.FaultBudget)
	require.EqualValues(t, 5, n.Spec.Safety.SignedBlocks)
	require.False(t, n.Spec.Safety.Unjail)
	require.Equal(t, v1alpha1.DriftAdopt, n.Spec.Drift.Policy)
	require.EqualValues(t, 180, n.Spec.Lock.TTLSeconds)
}

func TestInvalidNetworksAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for name, c := range map[string]struct {
		edit func(map[string]any)
		want string
	}{
		"no number":                {remove("spec.validators"), "spec.validators: Required value"},
		"no validators":            {set("spec.validators", int64(0)), "spec.validators in body should be greater than or equal to 1"},
		"a negative number":        {set("spec.validators", int64(-1)), "should be greater than or equal to 1"},
		"a huge number":            {set("spec.validators", int64(1001)), "should be less than or equal to 1000"},
		"a number as text":         {set("spec.validators", "5"), `must be of type integer: "string"`},
		"half a validator":         {set("spec.validators", 4.5), "must be of type integer"},
		"more than the ceiling":    {set("spec.validators", int64(17)), "validators must not be above safety.maxValidators"},
		"fewer than the floor":     {set("spec.validators", int64(3)), "validators must not be below safety.minValidators"},
		"no chain":                 {remove("spec.chain"), "spec.chain: Required value"},
		"no chain id":              {remove("spec.chain.chainID"), "spec.chain.chainID: Required value"},
		"an empty chain id":        {set("spec.chain.chainID", ""), "spec.chain.chainID in body should be at least 1 chars long"},
		"an unknown adapter":       {set("spec.chain.adapter", "bitcoin"), `Unsupported value: "bitcoin": supported values: "cosmos"`},
		"no RPC":                   {remove("spec.chain.rpc"), "spec.chain.rpc: Required value"},
		"an RPC that is no URL":    {set("spec.chain.rpc", "validator:26657"), "spec.chain.rpc in body should match '^https?://"},
		"an RPC of another scheme": {set("spec.chain.rpc", "file:///etc/passwd"), "spec.chain.rpc in body should match"},
		"an RPC with a space":      {set("spec.chain.rpc", "http://a b"), "spec.chain.rpc in body should match"},
		"no stake":                 {remove("spec.stake"), "spec.stake: Required value"},
		"a stake without a unit":   {set("spec.stake.amount", "100"), "spec.stake.amount in body should match"},
		"a stake of nothing":       {set("spec.stake.amount", "0stake"), "spec.stake.amount in body should match"},
		"a negative stake":         {set("spec.stake.amount", "-5stake"), "spec.stake.amount in body should match"},
		"half a token":             {set("spec.stake.amount", "1.5stake"), "spec.stake.amount in body should match"},
		"a floor of nothing":       {set("spec.safety", map[string]any{"minValidators": int64(0)}), "spec.safety.minValidators in body should be greater than or equal to 1"},
		"a ceiling too high":       {set("spec.safety", map[string]any{"maxValidators": int64(2000)}), "spec.safety.maxValidators in body should be less than or equal to 1000"},
		"a negative budget":        {set("spec.safety", map[string]any{"faultBudget": int64(-1)}), "spec.safety.faultBudget in body should be greater than or equal to 0"},
		"no proof wanted":          {set("spec.safety", map[string]any{"signedBlocks": int64(0)}), "spec.safety.signedBlocks in body should be greater than or equal to 1"},
		"an unknown drift policy":  {set("spec.drift", map[string]any{"policy": "pray"}), `Unsupported value: "pray": supported values: "adopt", "restore", "report"`},
		"a TTL too short":          {set("spec.lock", map[string]any{"ttlSeconds": int64(1)}), "spec.lock.ttlSeconds in body should be greater than or equal to 5"},
		"a TTL too long":           {set("spec.lock", map[string]any{"ttlSeconds": int64(3601)}), "spec.lock.ttlSeconds in body should be less than or equal to 3600"},
		"a cluster twice":          {set("spec.clusters", map[string]any{"names": []any{"a", "a"}}), `spec.clusters.names[1]: Duplicate value: "a"`},
		"a list of no clusters":    {set("spec.clusters", map[string]any{"names": []any{}}), "spec.clusters.names in body should have at least 1 items"},
		"a list before the first":  {set("spec.clusters", map[string]any{"names": []any{"a"}, "generation": int64(0)}), "spec.clusters.generation in body should be greater than or equal to 1"},
		"a negative token":         {set("spec.token", int64(-1)), "spec.token in body should be greater than or equal to 0"},
		"an empty secret name":     {set("spec.keys", map[string]any{"secret": ""}), "spec.keys.secret in body should be at least 1 chars long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := a.networks().Create(t.Context(), network("bad", c.edit), metav1.CreateOptions{})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestInvalidStatusesAreRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.networks().Create(t.Context(), network("demo"), metav1.CreateOptions{})
	require.NoError(t, err)
	entry := func(ordinal int64) map[string]any { return map[string]any{"ordinal": ordinal} }
	operations := make([]any, 21)
	for i := range operations {
		operations[i] = map[string]any{"type": "scale-up", "validators": int64(4), "token": int64(1), "run": map[string]any{"uid": "u"}}
	}
	for name, c := range map[string]struct {
		status map[string]any
		want   string
	}{
		"an unknown bond state":    {map[string]any{"roster": []any{map[string]any{"ordinal": int64(0), "state": "Happy"}}}, `Unsupported value: "Happy"`},
		"a negative ordinal":       {map[string]any{"roster": []any{entry(-1)}}, "status.roster[0].ordinal: Invalid value: -1: roster[0].ordinal in body should be greater than or equal to 0"},
		"an entry of nobody":       {map[string]any{"roster": []any{map[string]any{"address": "A"}}}, "status.roster[0].ordinal: Required value"},
		"a history without an end": {map[string]any{"history": operations}, "status.history: Too many: 21: must have at most 20 items"},
		"an operation of no run":   {map[string]any{"lastOperation": map[string]any{"type": "x", "validators": int64(4), "token": int64(1)}}, "status.lastOperation.run: Required value"},
		"a phase of its own":       {map[string]any{"lastOperation": map[string]any{"type": "x", "validators": int64(4), "token": int64(1), "phase": "Maybe", "run": map[string]any{"uid": "u"}}}, `Unsupported value: "Maybe"`},
		"a negative token":         {map[string]any{"token": int64(-1)}, "status.token: Invalid value: -1: token in body should be greater than or equal to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := a.patch(t, "demo", map[string]any{"status": c.status}, "status")
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func (a api) patch(t *testing.T, name string, patch map[string]any, sub ...string) error {
	t.Helper()
	b, err := json.Marshal(patch)
	require.NoError(t, err)
	_, err = a.networks().Patch(t.Context(), name, types.MergePatchType, b, metav1.PatchOptions{}, sub...)
	return err
}

func TestNetworkIsForOneChain(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.networks().Create(t.Context(), network("demo"), metav1.CreateOptions{})
	require.NoError(t, err)
	err = a.patch(t, "demo", map[string]any{"spec": map[string]any{"chain": map[string]any{"chainID": "other-1"}}})
	require.ErrorContains(t, err, "chainID is immutable: another chain is another ValidatorNetwork")
	require.NoError(t, a.patch(t, "demo", map[string]any{"spec": map[string]any{"chain": map[string]any{"rpc": "http://elsewhere"}}}))
}

func TestMemberClustersChangeOnlyWithTheirGeneration(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.networks().Create(t.Context(), network("demo", set("spec.clusters", map[string]any{"names": []any{"a", "b", "c"}})), metav1.CreateOptions{})
	require.NoError(t, err)
	change := func(clusters map[string]any) error {
		return a.patch(t, "demo", map[string]any{"spec": map[string]any{"clusters": clusters}})
	}
	require.ErrorContains(t, change(map[string]any{"names": []string{"a", "b"}}), "another list of clusters needs a higher generation")
	require.NoError(t, change(map[string]any{"names": []string{"a", "b"}, "generation": 2}))
	require.ErrorContains(t, change(map[string]any{"names": []string{"a"}, "generation": 1}), "another list of clusters needs a higher generation")
}

func TestOlderTokensAreFenced(t *testing.T) {
	t.Parallel()
	const fenced = "fenced: a run with a higher token has"
	a := newAPI(t)
	_, err := a.networks().Create(t.Context(), network("demo"), metav1.CreateOptions{})
	require.NoError(t, err)
	status := func(token int64, height int64) error {
		return a.patch(t, "demo", map[string]any{"status": map[string]any{"token": token, "height": height}}, "status")
	}
	spec := func(token, validators int64) error {
		return a.patch(t, "demo", map[string]any{"spec": map[string]any{"token": token, "validators": validators}})
	}
	require.NoError(t, status(7, 1))
	require.NoError(t, status(7, 2), "the same run writes again")
	require.ErrorContains(t, status(6, 3), fenced)
	require.NoError(t, status(8, 4))
	require.ErrorContains(t, status(7, 5), fenced)
	require.ErrorContains(t, a.patch(t, "demo", map[string]any{"status": map[string]any{"token": nil}}, "status"), fenced, "a forgotten token is no way around")
	require.ErrorContains(t, a.patch(t, "demo", map[string]any{"status": nil}, "status"), fenced, "nor is a removed status")

	require.NoError(t, spec(8, 5))
	require.ErrorContains(t, spec(7, 6), fenced)
	require.NoError(t, a.patch(t, "demo", map[string]any{"spec": map[string]any{"validators": 6}}), "people don't write tokens")
	u, err := a.networks().Get(t.Context(), "demo", metav1.GetOptions{})
	require.NoError(t, err)
	height, _, err := unstructured.NestedInt64(u.Object, "status", "height")
	require.NoError(t, err)
	require.EqualValues(t, 4, height, "nothing of a fenced write landed")
}

func TestSpecAndStatusAreWrittenApart(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	u, err := a.networks().Create(t.Context(), network("demo", set("status.height", int64(5))), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotContains(t, u.Object, "status", "status comes through its own subresource only")
	require.NoError(t, a.patch(t, "demo", map[string]any{"spec": map[string]any{"validators": 9}, "status": map[string]any{"height": 6}}, "status"))
	u, err = a.networks().Get(t.Context(), "demo", metav1.GetOptions{})
	require.NoError(t, err)
	validators, _, err := unstructured.NestedInt64(u.Object, "spec", "validators")
	require.NoError(t, err)
	require.EqualValues(t, 4, validators)
}

func TestScaleSubresource(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.networks().Create(t.Context(), network("demo"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, a.patch(t, "demo", map[string]any{"status": map[string]any{"validators": 4, "selector": "app=validator"}}, "status"))

	get := func() autoscalingv1.Scale {
		u, err := a.networks().Get(t.Context(), "demo", metav1.GetOptions{}, "scale")
		require.NoError(t, err)
		var s autoscalingv1.Scale
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s))
		return s
	}
	s := get()
	require.EqualValues(t, 4, s.Spec.Replicas)
	require.EqualValues(t, 4, s.Status.Replicas)
	require.Equal(t, "app=validator", s.Status.Selector)

	// What kubectl scale sends.
	require.NoError(t, a.patch(t, "demo", map[string]any{"spec": map[string]any{"replicas": 7}}, "scale"))
	require.EqualValues(t, 7, get().Spec.Replicas)
	err = a.patch(t, "demo", map[string]any{"spec": map[string]any{"replicas": 3}}, "scale")
	require.ErrorContains(t, err, "validators must not be below safety.minValidators")
	err = a.patch(t, "demo", map[string]any{"spec": map[string]any{"replicas": 17}}, "scale")
	require.ErrorContains(t, err, "validators must not be above safety.maxValidators")
	require.EqualValues(t, 7, get().Spec.Replicas)
}

func TestLockTokenNeverGoesDown(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	u, err := a.locks().Create(t.Context(), lock("demo", map[string]any{"token": int64(7), "holder": holder("a")}), metav1.CreateOptions{})
	require.NoError(t, err)
	ttl, _, err := unstructured.NestedInt64(u.Object, "spec", "ttlSeconds")
	require.NoError(t, err)
	require.EqualValues(t, 180, ttl)
	update := func(spec map[string]any) error {
		_, err := a.locks().Patch(t.Context(), "demo", types.MergePatchType, mustJSON(t, map[string]any{"spec": spec}), metav1.PatchOptions{})
		return err
	}
	require.NoError(t, update(map[string]any{"renewals": 1}), "a renewal")
	require.ErrorContains(t, update(map[string]any{"token": 6}), "token must never go down")
	require.ErrorContains(t, update(map[string]any{"token": 0, "holder": nil}), "token must never go down")
	require.ErrorContains(t, update(map[string]any{"holder": holder("b")}), "a new holder needs a token above the last one")
	require.NoError(t, update(map[string]any{"holder": nil}), "a release")
	require.ErrorContains(t, update(map[string]any{"holder": holder("b")}), "a new holder needs a token above the last one")
	require.ErrorContains(t, update(map[string]any{"holder": holder("a")}), "a new holder needs a token above the last one", "the old holder is new too")
	require.NoError(t, update(map[string]any{"holder": holder("b"), "token": 8}))
	require.NoError(t, update(map[string]any{"holder": holder("c"), "token": 12}), "gaps are fine")
}

func TestLockMembersChangeOnlyWithTheirGeneration(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.locks().Create(t.Context(), lock("demo", map[string]any{"token": int64(1), "generation": int64(1), "members": []any{"a", "b"}}), metav1.CreateOptions{})
	require.NoError(t, err)
	update := func(spec map[string]any) error {
		_, err := a.locks().Patch(t.Context(), "demo", types.MergePatchType, mustJSON(t, map[string]any{"spec": spec}), metav1.PatchOptions{})
		return err
	}
	require.ErrorContains(t, update(map[string]any{"members": []string{"a"}}), "changing the member clusters needs a higher generation")
	require.NoError(t, update(map[string]any{"members": []string{"a"}, "generation": 2}))
}

func TestInvalidLocksAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for name, c := range map[string]struct {
		spec map[string]any
		want string
	}{
		"no token":              {map[string]any{}, "spec.token: Required value"},
		"a negative token":      {map[string]any{"token": int64(-1)}, "spec.token in body should be greater than or equal to 0"},
		"a holder without run":  {map[string]any{"token": int64(1), "holder": map[string]any{"user": "x"}}, "spec.holder.run: Required value"},
		"a run without UID":     {map[string]any{"token": int64(1), "holder": map[string]any{"run": map[string]any{"name": "x"}}}, "spec.holder.run.uid: Required value"},
		"a run with no UID":     {map[string]any{"token": int64(1), "holder": holder("")}, "spec.holder.run.uid in body should be at least 1 chars long"},
		"no time to live":       {map[string]any{"token": int64(1), "ttlSeconds": int64(0)}, "spec.ttlSeconds in body should be greater than or equal to 1"},
		"a TTL of more than 1h": {map[string]any{"token": int64(1), "ttlSeconds": int64(3601)}, "spec.ttlSeconds in body should be less than or equal to 3600"},
		"a novel as a reason":   {map[string]any{"token": int64(1), "holder": map[string]any{"run": map[string]any{"uid": "u"}, "reason": strings.Repeat("x", 1025)}}, "spec.holder.reason: Too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := a.locks().Create(t.Context(), lock("bad", c.spec), metav1.CreateOptions{})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// table asks for what kubectl get shows.
func (a api) table(t *testing.T, gvr schema.GroupVersionResource) (columns []string, cells []any) {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(a.restConfig())
	require.NoError(t, err)
	raw, err := c.Get().AbsPath("apis", gvr.Group, gvr.Version, "namespaces", a.ns, gvr.Resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	require.Len(t, table.Rows, 1)
	return columns, table.Rows[0].Cells
}

func (a api) restConfig() *rest.Config {
	c := a.cp.Config()
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return c
}

func TestGetShowsTheRollCall(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	_, err := a.networks().Create(t.Context(), network("demo"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, a.patch(t, "demo", map[string]any{"status": map[string]any{
		"bonded": 4, "signing": 3, "jailed": 1, "height": 100, "lockHolder": "ann: scale-up",
		"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": "NotAllSigning", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}}, "status"))
	columns, cells := a.table(t, v1alpha1.NetworkResource)
	require.Equal(t, []string{"Name", "Wanted", "Bonded", "Signing", "Jailed", "Height", "Lock", "Ready", "Age"}, columns)
	require.Equal(t, []any{"demo", 4.0, 4.0, 3.0, 1.0, 100.0, "ann: scale-up", "False"}, cells[:8])

	_, err = a.locks().Create(t.Context(), lock("demo", map[string]any{"token": int64(7), "holder": map[string]any{
		"user": "ann", "operation": "scale-up", "step": "stake", "run": map[string]any{"uid": "u", "name": "scale-up-x7"},
	}}), metav1.CreateOptions{})
	require.NoError(t, err)
	columns, cells = a.table(t, v1alpha1.LockResource)
	require.Equal(t, []string{"Name", "Holder", "Operation", "Step", "Run", "Token", "Since", "Renewed"}, columns)
	require.Equal(t, []any{"demo", "ann", "scale-up", "stake", "scale-up-x7", 7.0}, cells[:6])
}

func TestCRDsAreUpToDateWithTheTypes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	crds, object := filepath.Join(dir, "crds"), filepath.Join(dir, "object")
	generate := exec.CommandContext(ctx, "go", "tool", "-modfile="+filepath.Join("tools", "controller-gen", "go.mod"), "controller-gen",
		"crd", "object", "paths=./api/...", "output:crd:dir="+crds, "output:object:dir="+object)
	generate.Dir = root
	generate.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err := generate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for generated, kept := range map[string]string{
		filepath.Join(crds, "rollcall.dev_validatornetworks.yaml"): filepath.Join(root, "manifests", "crds", "rollcall.dev_validatornetworks.yaml"),
		filepath.Join(crds, "rollcall.dev_deploymentlocks.yaml"):   filepath.Join(root, "manifests", "crds", "rollcall.dev_deploymentlocks.yaml"),
		filepath.Join(object, "zz_generated.deepcopy.go"):          "zz_generated.deepcopy.go",
	} {
		want, err := os.ReadFile(generated)
		require.NoError(t, err)
		got, err := os.ReadFile(kept)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is stale: generate it again", kept)
	}
}
