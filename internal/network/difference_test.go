package network

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// A newer Rollcall wrote this network: every "future" field is unknown here.
const fromTheFuture = `{
	"apiVersion": "rollcall.dev/v1alpha1", "kind": "ValidatorNetwork",
	"metadata": {"name": "demo", "resourceVersion": "7", "uid": "u"},
	"spec": {"validators": 4, "future": "s", "safety": {"future": "f", "minValidators": 4}},
	"status": {
		"future": {"deep": [1]}, "token": 3,
		"roster": [
			{"ordinal": 0, "address": "A", "future": {"a": 1}},
			{"ordinal": 1, "address": "B", "future": {"b": 1}, "power": 0},
			{"ordinal": 2, "address": "C"}
		],
		"lastOperation": {"type": "scale-up", "validators": 4, "token": 3, "run": {"uid": "r", "future": 1}, "future": 2},
		"history": [{"type": "scale-up", "validators": 4, "token": 2, "run": {"uid": "q", "future": "h"}, "future": "i"}],
		"conditions": [{"type": "Ready", "status": "True", "reason": "Ok", "message": "", "future": "c", "lastTransitionTime": null}]
	}
}`

// patched applies a change as the API server would.
func patched(t *testing.T, mutate func(*v1alpha1.ValidatorNetwork)) (patch, result map[string]any) {
	t.Helper()
	var raw map[string]any
	require.NoError(t, json.Unmarshal([]byte(fromTheFuture), &raw))
	old := &v1alpha1.ValidatorNetwork{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(raw, old))
	changed := old.DeepCopy()
	mutate(changed)
	b, err := difference(raw, old, changed)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &patch))
	require.NoError(t, json.Unmarshal([]byte(fromTheFuture), &result))
	merge(result, patch)
	return patch, result
}

// merge is RFC 7386 for objects.
func merge(to, patch map[string]any) {
	for k, v := range patch {
		sub, isObject := v.(map[string]any)
		old, wasObject := to[k].(map[string]any)
		switch {
		case v == nil:
			delete(to, k)
		case isObject && wasObject:
			merge(old, sub)
		default:
			to[k] = v
		}
	}
}

func TestDifferenceAppliesOnlyToItsVersion(t *testing.T) {
	t.Parallel()
	patch, _ := patched(t, func(*v1alpha1.ValidatorNetwork) {})
	require.Equal(t, map[string]any{"metadata": map[string]any{"resourceVersion": "7", "uid": "u"}}, patch)
}

func TestDifferenceSendsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	patch, _ := patched(t, func(n *v1alpha1.ValidatorNetwork) { n.Spec.Validators, n.Spec.Token = 5, 9 })
	require.Equal(t, map[string]any{"validators": 5.0, "token": 9.0}, patch["spec"])
	require.NotContains(t, patch, "status")
}

func TestDifferenceKeepsFieldsOfNewerVersions(t *testing.T) {
	t.Parallel()
	_, got := patched(t, func(n *v1alpha1.ValidatorNetwork) {
		n.Spec.Validators = 5
		n.Status.Token = 4
		n.Status.LastOperation.Step = "stake"
		n.Status.Roster[1].Power = 100
		n.Status.Roster = append(n.Status.Roster[:2], v1alpha1.RosterEntry{Ordinal: 3, Address: "D"})
		n.Status.History = append([]v1alpha1.Operation{{Type: "scale-down", Token: 3, Run: v1alpha1.RunReference{UID: "r"}}}, n.Status.History...)
		n.Status.Conditions[0].Status = "False"
	})
	spec, status := got["spec"].(map[string]any), got["status"].(map[string]any)
	require.Equal(t, "s", spec["future"])
	require.Equal(t, "f", spec["safety"].(map[string]any)["future"])
	require.Equal(t, map[string]any{"deep": []any{1.0}}, status["future"])
	require.Equal(t, []any{
		map[string]any{"ordinal": 0.0, "address": "A", "future": map[string]any{"a": 1.0}},
		map[string]any{"ordinal": 1.0, "address": "B", "future": map[string]any{"b": 1.0}, "power": 100.0},
		map[string]any{"ordinal": 3.0, "address": "D"},
	}, status["roster"], "entry 2 went, its neighbours kept what they had")
	op := status["lastOperation"].(map[string]any)
	require.EqualValues(t, 2, op["future"])
	require.Equal(t, "stake", op["step"])
	require.EqualValues(t, 1, op["run"].(map[string]any)["future"])
	history := status["history"].([]any)
	require.Len(t, history, 2)
	require.NotContains(t, history[0], "future")
	require.Equal(t, "i", history[1].(map[string]any)["future"], "an entry that moved down is still the same")
	require.Equal(t, "h", history[1].(map[string]any)["run"].(map[string]any)["future"])
	condition := status["conditions"].([]any)[0].(map[string]any)
	require.Equal(t, "c", condition["future"])
	require.Equal(t, "False", condition["status"])
}

func TestDifferenceRemovesWhatWasCleared(t *testing.T) {
	t.Parallel()
	_, got := patched(t, func(n *v1alpha1.ValidatorNetwork) {
		n.Status.LastOperation = nil
		n.Status.Roster[0].Address = ""
	})
	status := got["status"].(map[string]any)
	require.NotContains(t, status, "lastOperation")
	require.NotContains(t, status["roster"].([]any)[0], "address", "a cleared field isn't mistaken for an unknown one")
}
