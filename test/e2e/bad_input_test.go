//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
)

// base is the number of validators that the scenes of bad input begin and end with.
const base = 5

// asked is a run that must fail.
type asked struct {
	name       string
	operation  string
	validators string
	parameters []string
	network    string // whose lock must be free; the demo's when empty
	code       int
	says       []string // regular expressions that the one line matches
}

// badInput asks for what can't be, and checks that nothing comes of it.
func badInput(t *testing.T, d *demo) {
	digits := `ROLLCALL_VALIDATORS: must be a whole number from 1 to 1000 in plain digits, such as 5, not `
	all := []asked{
		{name: "shell text", validators: "5; rm -rf /", code: 2, says: []string{digits + `"5; rm -rf /"`}},
		{name: "17, above the limit", validators: "17", code: 2, says: []string{`17 validators are above the limit of 16`, `maxValidators`}},
		{name: "3, below the minimum", operation: "scale-down", validators: "3", code: 2, says: []string{`3 validators are below the safety minimum of 4`, `minValidators`}},
	}
	if *whole {
		for _, v := range []string{"it's", "5.0", "-1", " 5", "1e9", "", "0"} {
			all = append(all, asked{name: fmt.Sprintf("%q", v), validators: v, code: 2, says: []string{digits + regexp.QuoteMeta(strconv.Quote(v))}})
		}
	}
	for i := range all {
		all[i].parameters = []string{"network=" + networkName}
	}
	d.otherNetworks(t, all)
	d.badKeys(t)
	if *whole {
		// These take the network's one lock, so one after another.
		d.refused(t, "scale-up to fewer", []asked{{name: "scale-up to fewer", validators: fmt.Sprint(base - 1), code: 2, says: []string{`scale-down`}}})
		d.refused(t, "scale-down to more", []asked{{name: "scale-down to more", operation: "scale-down", validators: fmt.Sprint(base + 1), code: 2, says: []string{`scale-up`}}})
		d.missingImage(t)
	}
	d.missingRights(t)
}

// refused submits all the runs at once, each as a row of the table, and one
// more for all of them: none may change anything or send a transaction.
func (d *demo) refused(t *testing.T, what string, all []asked) {
	t.Helper()
	t.Run(what, func(t *testing.T) {
		d.at(t, base)
		before, height := d.facts(t), d.chain().heightNow(t)
		runs := make([]workflow, len(all))
		for i, a := range all {
			operation := a.operation
			if operation == "" {
				operation = "scale-up"
			}
			// Without waiting for each other: lockWait=0s has no queue.
			runs[i] = d.submitText(t, operation, a.validators, append([]string{"lockWait=0s"}, a.parameters...)...)
		}
		for i, a := range all {
			d.scene(t, a.name, func(t *testing.T) string {
				return d.requireRefused(t, runs[i].wait(t), a)
			})
		}
		d.scene(t, "nothing was changed by "+what, func(t *testing.T) string {
			d.requireUnchanged(t, before)
			return "StatefulSet, spec, roster and pods as before; " + d.sent(t, height, 0)
		})
	})
}

// requireRefused checks how a run failed, and returns its one line.
func (d *demo) requireRefused(t *testing.T, o outcome, a asked) string {
	t.Helper()
	require.Equal(t, "Failed", o.phase, o.message)
	f := o.failure(t)
	require.Equal(t, a.code, f.ExitCode, f.Message)
	for _, says := range a.says {
		require.Regexp(t, says, f.Message)
	}
	name := a.network
	if name == "" {
		name = networkName
	}
	d.requireFree(t, name)
	return fmt.Sprintf("exit %d in %s: %s", f.ExitCode, f.Step, clip(f.Message))
}

func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// otherNetworks describes networks that can't be worked on, over the same pods,
// and asks for them together with the other runs: none of them gets to the
// network's lock.
func (d *demo) otherNetworks(t *testing.T, all []asked) {
	describe := func(t *testing.T, name string, change func(*v1alpha1.ValidatorNetworkSpec)) {
		n := &v1alpha1.ValidatorNetwork{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.NetworkKind.Kind},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec:       d.network(t, networkName).Spec,
		}
		n.Spec.Token = 0
		change(&n.Spec)
		u := object(t, n)
		delete(u.Object, "status")
		_, err := d.dynamic.Resource(v1alpha1.NetworkResource).Namespace(namespace).Create(request(t), u, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			err := d.dynamic.Resource(v1alpha1.NetworkResource).Namespace(namespace).Delete(request(t), name, metav1.DeleteOptions{})
			require.NoError(t, err)
			if err = d.dynamic.Resource(v1alpha1.LockResource).Namespace(namespace).Delete(request(t), name, metav1.DeleteOptions{}); statusOf(err).Code != 404 {
				require.NoError(t, err)
			}
		})
	}
	t.Run("input", func(t *testing.T) {
		describe(t, "other-chain", func(s *v1alpha1.ValidatorNetworkSpec) { s.Chain.ChainID = "other-1" })
		describe(t, "rpc-down", func(s *v1alpha1.ValidatorNetworkSpec) {
			s.Chain.RPC = "http://{pod}.validator.{namespace}:26699"
		})
		// The metrics port answers everything with a page of text.
		describe(t, "rpc-garbage", func(s *v1alpha1.ValidatorNetworkSpec) {
			s.Chain.RPC = "http://{pod}.validator.{namespace}:26660"
		})
		describe(t, "no-pods", func(s *v1alpha1.ValidatorNetworkSpec) { s.Workload.StatefulSet = "nope" })
		specs := map[string]v1alpha1.ValidatorNetworkSpec{}
		all = append(all, []asked{
			{name: "several networks and none named", validators: "7", code: 2, says: []string{`has several ValidatorNetworks: .*demo.*other-chain`, `ROLLCALL_NETWORK`}},
			{name: "nodes of another chain", validators: "7", network: "other-chain", code: 2, says: []string{`is a node of chain "rollcall-demo-1", but the network's chain is "other-1"`, `correct the chain id`}},
			{name: "RPC down", validators: "7", network: "rpc-down", code: 75, says: []string{`no validator's RPC answered`, `:26699`, `connection refused`, `check .*spec.chain.rpc`}},
			{name: "RPC returns garbage", validators: "7", network: "rpc-garbage", code: 7, says: []string{`:26660`, `check .*RPC`}},
		}...)
		if *whole {
			all = append(all, []asked{
				{name: "a network that isn't there", validators: "7", parameters: []string{"network=nope"}, network: "nope", code: 2,
					says: []string{`ValidatorNetwork rollcall-demo/nope doesn't exist`, `kubectl get vnet`}},
				{name: "a StatefulSet that isn't there", validators: "7", network: "no-pods", code: 2, says: []string{`StatefulSet rollcall-demo/nope doesn't exist`, `spec.workload.statefulSet`}},
			}...)
		}
		for i := range all {
			if n := all[i].network; n != "" && n != "nope" {
				all[i].parameters = []string{"network=" + n}
				specs[n] = d.network(t, n).Spec
			}
		}
		d.refused(t, "the wrong input", all)
		for n, spec := range specs {
			require.Equal(t, spec, d.network(t, n).Spec)
		}
	})
}

// badKeys takes the next validator's Secret away, then puts a malformed one there.
func (d *demo) badKeys(t *testing.T) {
	t.Run("keys", func(t *testing.T) {
		name := fmt.Sprintf("%s-%d-keys", statefulSet, base)
		secrets := d.kube.CoreV1().Secrets(namespace)
		good, err := secrets.Get(request(t), name, metav1.GetOptions{})
		require.NoError(t, err)
		put := func(t *testing.T, data map[string][]byte) {
			if err := secrets.Delete(request(t), name, metav1.DeleteOptions{}); statusOf(err).Code != 404 {
				require.NoError(t, err)
			}
			if data == nil {
				return
			}
			_, err := secrets.Create(request(t), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: good.Labels, Annotations: good.Annotations},
				Type:       good.Type, Immutable: good.Immutable, Data: data,
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		t.Cleanup(func() { put(t, good.Data) })
		next := fmt.Sprint(base + 1)

		if *whole {
			put(t, nil)
			d.refused(t, "a missing Secret", []asked{{name: "a Secret that isn't there", validators: next, code: 2,
				says: []string{fmt.Sprintf(`validator %d: Secret rollcall-demo/%s doesn't exist`, base, name), `create it with the entries`}}})
		}

		bad := map[string][]byte{"node_key.json": good.Data["node_key.json"], "priv_validator_key.json": []byte(`{"priv_key": "` + planted + `"}`)}
		put(t, bad)
		d.refused(t, "a malformed key", []asked{{name: "a malformed and a missing key", validators: next, code: 2,
			says: []string{`Secret rollcall-demo/` + name, `priv_validator_key.json`, `operator.mnemonic: missing`}}})
	})
}

// missingRights takes one right after another from the steps' role.
func (d *demo) missingRights(t *testing.T) {
	roles := d.kube.RbacV1().Roles(namespace)
	good, err := roles.Get(request(t), "rollcall", metav1.GetOptions{})
	require.NoError(t, err)
	put := func(t *testing.T, rules []rbacv1.PolicyRule) {
		r, err := roles.Get(request(t), "rollcall", metav1.GetOptions{})
		require.NoError(t, err)
		r.Rules = rules
		_, err = roles.Update(request(t), r, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	for _, c := range []struct{ verb, group, resource, name string }{
		{"list", "rollcall.dev", "validatornetworks", ""},
		{"get", "", "secrets", fmt.Sprintf("%s-%d-keys", statefulSet, base)},
		{"patch", "apps", "statefulsets", statefulSet},
	} {
		if c.verb != "patch" && !*whole {
			continue
		}
		t.Run("rights", func(t *testing.T) {
			t.Cleanup(func() {
				put(t, good.Rules)
				d.allowed(t, c.verb, c.group, c.resource, c.name, true)
			})
			var rules []rbacv1.PolicyRule
			for _, r := range good.DeepCopy().Rules {
				if r.APIGroups[0] == c.group && r.Resources[0] == c.resource {
					var verbs []string
					for _, v := range r.Verbs {
						if v != c.verb {
							verbs = append(verbs, v)
						}
					}
					if r.Verbs = verbs; len(verbs) == 0 {
						continue
					}
				}
				rules = append(rules, r)
			}
			put(t, rules)
			d.allowed(t, c.verb, c.group, c.resource, c.name, false)
			d.refused(t, c.verb+" "+c.resource, []asked{{name: fmt.Sprintf("no right to %s %s", c.verb, c.resource), validators: fmt.Sprint(base + 1), code: 2,
				says: []string{fmt.Sprintf(`grant the right to %s %s\S* in namespace rollcall-demo`, c.verb, c.resource)}}})
		})
	}
}

// allowed waits until the API server knows of a changed right.
func (d *demo) allowed(t *testing.T, verb, group, resource, name string, want bool) {
	t.Helper()
	eventually(t, time.Minute, "the changed role", func(ctx context.Context) (bool, string) {
		r, err := d.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authv1.SubjectAccessReview{Spec: authv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":rollcall",
			ResourceAttributes: &authv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name,
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, err.Error()
		}
		return r.Status.Allowed == want, fmt.Sprintf("allowed: %t", r.Status.Allowed)
	})
}

// missingImage lets new pods need an image that isn't there, while the pods that
// run stay as they are.
func (d *demo) missingImage(t *testing.T) {
	d.scene(t, "an image that isn't there is found out and rolled back", func(t *testing.T) string {
		d.at(t, base)
		before, height := d.facts(t), d.chain().heightNow(t)
		good := d.set(t)
		image := func(strategy any, image string) {
			d.patchJSON(t, "statefulset", statefulSet, []map[string]any{
				{"op": "replace", "path": "/spec/updateStrategy", "value": strategy},
				{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image},
				{"op": "replace", "path": "/spec/template/spec/initContainers/0/image", "value": image},
			})
		}
		t.Cleanup(func() {
			image(good.Spec.UpdateStrategy, good.Spec.Template.Spec.Containers[0].Image)
			d.kubectl(t, "rollout", "status", "statefulset/"+statefulSet, "--timeout=3m")
		})
		image(map[string]any{"type": "OnDelete"}, "local.test/nothing:none")
		o := d.run(t, "scale-up", base+1, "lockWait=0s")
		seen := d.requireRefused(t, o, asked{code: 6, says: []string{fmt.Sprintf(`validator %d doesn't start: pod %s-%d`, base, statefulSet, base), `local.test/nothing:none`, `run again`}})
		after := d.facts(t)
		require.Equal(t, before.Replicas, after.Replicas)
		require.Equal(t, before.Network.Validators, after.Network.Validators)
		eventually(t, time.Minute, "pods of before", func(context.Context) (bool, string) {
			after = d.facts(t)
			return len(after.Pods) == len(before.Pods), fmt.Sprintf("%d pods", len(after.Pods))
		})
		require.Equal(t, before.Pods, after.Pods)
		for operator, sequence := range after.Sequences {
			// The validator that came too far to be unknown has sent nothing either.
			want, known := before.Sequences[operator]
			if !known {
				want = "0"
			}
			require.Equal(t, want, sequence, "transactions sent by %s", operator)
		}
		return seen + "; " + d.sent(t, height, 0) + fmt.Sprintf("; %d replicas as before", after.Replicas)
	})
}

func (d *demo) patchJSON(t *testing.T, resource, name string, ops any) {
	t.Helper()
	b, err := json.Marshal(ops)
	require.NoError(t, err)
	d.kubectl(t, "patch", resource, name, "--type=json", "-p", string(b))
}
