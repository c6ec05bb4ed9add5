//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cosmos/go-bip39"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planted is in a malformed key that the scenes of bad input put into a Secret;
// no error may quote it.
const planted = "planted-in-a-malformed-key"

// kinds are read whole. Pods bring the termination messages with them.
var kinds = []string{
	"pods", "events", "workflows.argoproj.io", "workflowtaskresults.argoproj.io", "workflowtemplates.argoproj.io",
	"validatornetworks", "deploymentlocks", "configmaps", "jobs", "cronjobs", "statefulsets", "controllerrevisions",
	"persistentvolumeclaims",
}

// secrets looks for every key in everything that the run has left behind.
func secrets(t *testing.T, d *demo) {
	var stack map[string]string
	d.scene(t, "the search sees what is there", func(t *testing.T) string {
		stack = d.haystack(t)
		n := d.network(t, networkName)
		require.NotEmpty(t, n.Status.Roster)
		address := n.Status.Roster[len(n.Status.Roster)-1].Address
		// What is public must be found, in each kind of place.
		for place, public := range map[string]string{
			"events": n.Name, "validatornetworks": address, "deploymentlocks": "e2e", "workflows.argoproj.io": "scale-up-",
			"pods": "exitCode", "configmaps": n.Spec.Chain.ChainID, "log of ": n.Spec.Chain.ChainID,
		} {
			require.NotEmpty(t, find(stack, place, map[string]string{"public": public}), "%q isn't found in %s", public, place)
		}
		needles := d.needles(t)
		for what, key := range needles {
			require.NotEmpty(t, find(map[string]string{"a log": "x" + key + "x"}, "", needles), what)
		}
		size := 0
		for _, s := range stack {
			size += len(s)
		}
		return fmt.Sprintf("%d logs and lists, %.1f MB, %d forms of keys", len(stack), float64(size)/1e6, len(needles))
	})

	d.scene(t, "no key in any log, event, workflow, message or record", func(t *testing.T) string {
		require.NotEmpty(t, stack)
		require.Empty(t, find(stack, "", d.needles(t)), "keys were found: what, and where")
		return "none"
	})
}

// find returns what was found where, never the key itself. Only places that
// begin with the prefix are searched.
func find(stack map[string]string, prefix string, needles map[string]string) (found []string) {
	for place, content := range stack {
		if !strings.HasPrefix(place, prefix) {
			continue
		}
		for what, n := range needles {
			if strings.Contains(content, n) {
				found = append(found, what+" in "+place)
			}
		}
	}
	slices.Sort(found)
	return found
}

// haystack is everything that people and other programs get to see.
func (d *demo) haystack(t *testing.T) map[string]string {
	t.Helper()
	stack := map[string]string{}
	for _, k := range kinds {
		stack[k] = d.kubectl(t, "get", k, "-o", "json")
	}
	for id, log := range d.logs.all() {
		stack["kept log of "+id] = log
	}
	for _, ns := range []string{namespace, "argo"} {
		l, err := d.kube.CoreV1().Pods(ns).List(request(t), metav1.ListOptions{})
		require.NoError(t, err)
		if ns == namespace {
			require.NotEmpty(t, l.Items)
		}
		for _, p := range l.Items {
			for _, c := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
				if c.State.Waiting != nil {
					continue
				}
				r, err := d.kube.CoreV1().Pods(ns).GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name}).Stream(request(t))
				require.NoError(t, err, "log of %s, container %s", p.Name, c.Name)
				b, err := io.ReadAll(r)
				require.NoError(t, err)
				require.NoError(t, r.Close())
				stack["log of "+p.Name+" "+c.Name] = string(b)
			}
		}
	}
	return stack
}

// needles are the private parts of all keys, in every form they might be
// written in.
func (d *demo) needles(t *testing.T) map[string]string {
	t.Helper()
	l, err := d.kube.CoreV1().Secrets(namespace).List(request(t), metav1.ListOptions{})
	require.NoError(t, err)
	out := map[string]string{"a malformed key": planted}
	bytesOf := func(what string, b []byte) {
		out[what+" in hex"] = hex.EncodeToString(b)
		out[what+" in upper-case hex"] = strings.ToUpper(hex.EncodeToString(b))
		out[what+" in base64"] = base64.RawStdEncoding.EncodeToString(b)
		out[what+" in URL base64"] = base64.RawURLEncoding.EncodeToString(b)
		out[what+" as numbers"] = strings.Trim(fmt.Sprint(b), "[]") //nolint:staticcheck // the numbers are meant, not the text
	}
	validators := 0
	for _, s := range l.Items {
		if !strings.HasSuffix(s.Name, "-keys") {
			continue
		}
		validators++
		words := strings.Fields(string(s.Data["operator.mnemonic"]))
		require.Len(t, words, 24, s.Name)
		for i := 0; i+4 <= len(words); i += 4 {
			out[fmt.Sprintf("%s words %d to %d", s.Name, i+1, i+4)] = strings.Join(words[i:i+4], " ")
		}
		out[s.Name+" words as a Secret has them"] = base64.StdEncoding.EncodeToString(s.Data["operator.mnemonic"])
		bytesOf(s.Name+" BIP39 seed", bip39.NewSeed(strings.Join(words, " "), ""))
		for _, entry := range []string{"priv_validator_key.json", "node_key.json"} {
			var k struct {
				Key struct{ Value []byte } `json:"priv_key"`
			}
			require.NoError(t, json.Unmarshal(s.Data[entry], &k), s.Name)
			require.Len(t, k.Key.Value, 64, "ed25519: 32 secret bytes, then the public key")
			// 30 bytes, so that the base64 of what comes after doesn't matter.
			bytesOf(s.Name+" "+entry, k.Key.Value[:30])
			out[s.Name+" "+entry+" as a Secret has it"] = base64.StdEncoding.EncodeToString(s.Data[entry])
		}
	}
	require.GreaterOrEqual(t, validators, 8)
	return out
}
