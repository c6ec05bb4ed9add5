//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestAnUncontendedLockCostsFourRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	since := time.Now()
	e := w.must(t, "acquire-lock", "a", map[string]string{"VALIDATORS": "5"})
	require.Equal(t, map[string]string{"token": "1", "lock-id": "demo-1", "validators": "5"}, e.message.Outputs)
	uid, _ := w.lockHolder(t)
	require.Equal(t, "a", uid)
	w.must(t, "release-lock", "a", nil)
	w.requireFreeLock(t)

	var lock, all []string
	for _, r := range w.requests(t, since, nil) {
		all = append(all, r.Verb+" "+r.ObjectRef.Resource)
		if r.ObjectRef.Resource == v1alpha1.LockResource.Resource {
			lock = append(lock, r.Verb)
		}
	}
	t.Logf("all requests: %s", strings.Join(all, ", "))
	require.LessOrEqual(t, len(lock), 4, "%v", lock)
}

func TestTheRecordTellsWhoWorksAndHowItEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.must(t, "acquire-lock", "a", map[string]string{"VALIDATORS": "5", "RUN_KIND": "Job", "RUN_NAME": "job-a"})
	n := w.network(t)
	require.Equal(t, "tester: scale-up", n.Status.LockHolder)
	require.Equal(t, v1alpha1.OperationRunning, n.Status.LastOperation.Phase)
	require.Equal(t, "tester", n.Status.LastOperation.User)
	require.EqualValues(t, 5, n.Status.LastOperation.Validators)
	require.EqualValues(t, 4, n.Spec.Validators, "the wish changes with an accepted plan only")

	w.must(t, "release-lock", "a", nil)
	n = w.network(t)
	require.Empty(t, n.Status.LockHolder)
	require.Equal(t, v1alpha1.OperationFailed, n.Status.LastOperation.Phase)
	require.Contains(t, n.Status.LastOperation.Message, "ended without a word in step acquire-lock")
	w.must(t, "release-lock", "a", nil) // again is fine
	w.must(t, "release-lock", "b", nil) // so is an exit handler that never had it
}

func TestABusyLockIsRefusedWithItsHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.must(t, "acquire-lock", "a", map[string]string{"VALIDATORS": "5", "REASON": "more of them", "HOST": "desk"})
	e := w.run(t, "acquire-lock", "b", map[string]string{"VALIDATORS": "6", "USER": "other"})
	require.Equal(t, 3, e.code, e.log)
	for _, part := range []string{"tester", "scale-up", "desk", "demo-1"} {
		require.Contains(t, e.message.Message, part)
	}
	w.must(t, "acquire-lock", "a", map[string]string{"VALIDATORS": "5"}) // the same run again
	w.must(t, "release-lock", "b", nil)
	uid, _ := w.lockHolder(t)
	require.Equal(t, "a", uid, "another run's release frees nothing")

	e = w.run(t, "load-keys", "b", nil)
	require.Equal(t, 4, e.code, "a run without the lock changes nothing:\n%s", e.log)
}

func TestBadParametersChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	before := w.network(t).ResourceVersion
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"an injection":       {map[string]string{"VALIDATORS": "5; rm -rf"}, "ROLLCALL_VALIDATORS: must be a whole number from 1 to 1000"},
		"a fraction":         {map[string]string{"VALIDATORS": "5.0"}, "ROLLCALL_VALIDATORS: must be a whole number"},
		"an empty parameter": {map[string]string{"VALIDATORS": ""}, "ROLLCALL_VALIDATORS: must be a whole number"},
		"above the limit":    {map[string]string{"VALIDATORS": "17"}, "17 validators are above the limit of 16; ask for fewer, or raise spec.safety.maxValidators"},
		"below the minimum":  {map[string]string{"VALIDATORS": "3"}, "3 validators are below the safety minimum of 4"},
		"no such network":    {map[string]string{"VALIDATORS": "5", "NETWORK": "nowhere"}, "ValidatorNetwork " + w.ns + "/nowhere doesn't exist; check ROLLCALL_NETWORK"},
		"a wrong operation":  {map[string]string{"OPERATION": "explode"}, "ROLLCALL_OPERATION: must be scale-up or scale-down"},
		"no run":             {map[string]string{"VALIDATORS": "5", "RUN_UID": ""}, "ROLLCALL_RUN_UID: is required"},
	} {
		e := w.run(t, "acquire-lock", "a", c.env)
		require.Equal(t, 2, e.code, "%s:\n%s", name, e.log)
		require.Contains(t, e.message.Message, c.want, name)
		require.Equal(t, "BadConfiguration", e.message.Reason)
	}
	require.Equal(t, before, w.network(t).ResourceVersion)
	_, exists := w.lockHolder(t)
	require.False(t, exists, "no lock was ever taken")
}

func TestLoadKeysSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := func(t *testing.T) []map[string][]byte {
		var all []map[string][]byte
		for range 5 {
			all = append(all, newKeys(t))
		}
		return all
	}
	for name, c := range map[string]struct {
		keys    func([]map[string][]byte) []map[string][]byte
		network func(map[string]any)
		code    int
		parts   []string
	}{
		"all there": {code: 0, parts: []string{"keys of 5 validators are sound"}},
		"no Secret": {
			keys: func(k []map[string][]byte) []map[string][]byte { return k[:4] },
			code: 2, parts: []string{"load keys of validator 4: Secret NS/validator-4-keys doesn't exist", "create it with the entries priv_validator_key.json and operator.mnemonic"},
		},
		"malformed, all of them at once": {
			keys: func(k []map[string][]byte) []map[string][]byte {
				k[1]["operator.mnemonic"] = []byte("hunter2 hunter2 hunter2 hunter2")
				k[3]["priv_validator_key.json"] = []byte(`{"priv_key":"hunter2"}`)
				delete(k[3], "operator.mnemonic")
				return k
			},
			code: 2, parts: []string{
				"Secret NS/validator-1-keys entry operator.mnemonic: not an operator key: 4 words",
				"Secret NS/validator-3-keys entry priv_validator_key.json: not a CometBFT key file", "entry operator.mnemonic: missing",
			},
		},
		"one key twice": {
			keys: func(k []map[string][]byte) []map[string][]byte {
				k[4]["priv_validator_key.json"] = k[2]["priv_validator_key.json"]
				return k
			},
			code: 5, parts: []string{"validators 2 and 4 have the same consensus key", "give one of them its own key"},
		},
		"no right to these Secrets": {
			network: func(spec map[string]any) { spec["keys"] = map[string]any{"secret": "vault-{ordinal}"} },
			code:    2, parts: []string{"get secrets NS/vault-0", "grant the right to get secrets in namespace NS"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := good(t)
			if c.keys != nil {
				k = c.keys(k)
			}
			w := newWorld(t, setup{keys: k, network: c.network})
			w.must(t, "acquire-lock", "a", map[string]string{"VALIDATORS": "5"})
			e := w.run(t, "load-keys", "a", map[string]string{"VALIDATORS": "5"})
			require.Equal(t, c.code, e.code, e.log)
			for _, part := range c.parts {
				require.Contains(t, e.message.Message, strings.ReplaceAll(part, "NS", w.ns))
			}
			require.NotContains(t, e.log+e.message.Message, "hunter2")
			n := w.network(t)
			if c.code == 0 {
				require.Len(t, n.Status.Roster, 5)
				raw, err := json.Marshal(n)
				require.NoError(t, err)
				for _, s := range w.secrets {
					require.NotContains(t, string(raw), s)
				}
			} else {
				require.Equal(t, v1alpha1.OperationFailed, n.Status.LastOperation.Phase)
				require.Equal(t, "load-keys", n.Status.LastOperation.Step)
				require.Empty(t, n.Status.Roster)
			}
			w.must(t, "release-lock", "a", nil)
			w.requireFreeLock(t)
		})
	}
}

func TestRunFreesTheLockWhenAStepFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for o := range 4 {
		w.declareReady(t, o)
	}
	e := w.run(t, "run", "a", map[string]string{"VALIDATORS": "5"})
	require.Equal(t, 75, e.code, e.log)
	require.Contains(t, e.message.Message, "plan: no validator's RPC answered")
	w.requireFreeLock(t)
	n := w.network(t)
	require.Equal(t, v1alpha1.OperationFailed, n.Status.LastOperation.Phase)
	require.Equal(t, "plan", n.Status.LastOperation.Step)
	require.Empty(t, n.Status.LockHolder)
	require.EqualValues(t, 4, n.Spec.Validators)
	require.Equal(t, 4, w.replicas(t))

	l, err := w.admin().EventsV1().Events(w.ns).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var told []string
	for _, ev := range l.Items {
		if ev.Regarding.Kind == "ValidatorNetwork" {
			told = append(told, fmt.Sprintf("%s %s %s", ev.Type, ev.Reason, ev.Action))
		}
	}
	require.ElementsMatch(t, []string{"Normal Started acquire-lock", "Warning Transient plan"}, told)
}

func TestDryRunsOnlyLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	before := w.network(t).ResourceVersion
	since := time.Now()
	for _, name := range []string{"acquire-lock", "load-keys", "scale", "wait-ready", "stake", "unstake", "verify-consensus", "save-state", "release-lock"} {
		w.must(t, name, "a", map[string]string{"VALIDATORS": "5", "DRY_RUN": "true"})
	}
	for _, r := range w.requests(t, since, func(e kubetest.AuditEvent) bool { return e.Verb != "get" && e.Verb != "list" }) {
		require.Fail(t, "a dry run wrote", "%s %s", r.Verb, r.RequestURI)
	}
	require.Equal(t, before, w.network(t).ResourceVersion)
}
