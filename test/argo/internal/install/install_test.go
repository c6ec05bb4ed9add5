package install

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// stub writes a stand-in for kubectl that logs its arguments and then does what
// the shell text says.
func stub(t *testing.T, shell string) (k Kubectl, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	program := filepath.Join(dir, "kubectl")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$*\" >> "+log+"\n"+shell), 0o755))
	return Kubectl{Program: program, Kubeconfig: "/kc"}, func() string {
		data, err := os.ReadFile(log)
		require.NoError(t, err)
		return string(data)
	}
}

const applied = `case "$*" in *apply*) cat >/dev/null
echo namespace/argo serverside-applied
echo customresourcedefinition.apiextensions.k8s.io/workflows.argoproj.io serverside-applied;; esac
`

func TestInstallWaitsForDefinitionsAndController(t *testing.T) {
	t.Parallel()
	k, calls := stub(t, applied)
	i := Installer{Kubectl: k, Namespace: "argo", Timeout: time.Minute, Log: t.Logf}
	require.NoError(t, i.Install(t.Context(), []byte("a: b\n")))
	require.Equal(t, `--kubeconfig=/kc apply --server-side --force-conflicts --field-manager=argo-testbed -f -
--kubeconfig=/kc wait --for=condition=Established --timeout=1m0s customresourcedefinition.apiextensions.k8s.io/workflows.argoproj.io
--kubeconfig=/kc -n argo rollout status deployment/workflow-controller --timeout=1m0s
`, calls())
}

func TestFailedRollOutTellsWhatThePodsSay(t *testing.T) {
	t.Parallel()
	k, _ := stub(t, applied+`case "$*" in
*rollout*) echo timed out >&2; exit 1;;
*"get pods"*) echo workflow-controller-x ErrImagePull;;
*"get events"*) echo Failed to pull image;; esac
`)
	i := Installer{Kubectl: k, Namespace: "argo", Timeout: time.Minute, Log: t.Logf}
	err := i.Install(t.Context(), nil)
	for _, part := range []string{"timed out", "ErrImagePull", "Failed to pull image"} {
		require.ErrorContains(t, err, part)
	}
}

func TestHangingClusterEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	k, _ := stub(t, "exec sleep 60\n")
	i := Installer{Kubectl: k, Namespace: "argo", Timeout: 200 * time.Millisecond, Log: t.Logf}
	began := time.Now()
	require.ErrorContains(t, i.Install(t.Context(), nil), "gave up after 200ms")
	require.Less(t, time.Since(began), 30*time.Second)
}

func TestSmokeJudgesTheWorkflowAndNotTheExitCode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ list, want string }{
		"success":             {`{"items":[{"status":{"phase":"Succeeded"}}]}`, ""},
		"failure names nodes": {`{"items":[{"status":{"phase":"Failed","message":"child failed","nodes":{"a":{"displayName":"main","phase":"Error","message":"pod refused"}}}}]}`, "node main is Error: pod refused"},
		"still running":       {`{"items":[{"status":{"phase":"Running"}}]}`, `workflow is "Running"`},
		"never created":       {`{"items":[]}`, "found 0"},
		"not JSON":            {`oops`, "parse workflow"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := judge([]byte(tt.list))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestSmokeDeletesItsNamespaceWhateverHappens(t *testing.T) {
	t.Parallel()
	k, calls := stub(t, `case "$*" in *apply*) cat >/dev/null; echo refused >&2; exit 1;; esac
`)
	s := Smoke{Kubectl: k, CLI: "/does/not/exist", ExecutorImage: "x:y", Timeout: time.Minute, Log: t.Logf}
	require.ErrorContains(t, s.Run(t.Context()), "refused")
	require.Regexp(t, `delete namespace argo-smoke-\w{5} `, calls())
}

func TestSmokeWorkflowSatisfiesRestrictedByItself(t *testing.T) {
	t.Parallel()
	w, err := yaml.Marshal(Smoke{ExecutorImage: "x:y", Timeout: time.Minute}.workflow())
	require.NoError(t, err)
	var parsed struct {
		Spec struct {
			SecurityContext corev1.PodSecurityContext
			Templates       []struct {
				ContainerSet struct{ Containers []corev1.Container }
				Container    *corev1.Container
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(w, &parsed))
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	containers := 0
	for _, tmpl := range parsed.Spec.Templates {
		pod := corev1.PodSpec{SecurityContext: &parsed.Spec.SecurityContext, Containers: tmpl.ContainerSet.Containers}
		if tmpl.Container != nil {
			pod.Containers = append(pod.Containers, *tmpl.Container)
		}
		containers += len(pod.Containers)
		for _, r := range evaluator.EvaluatePod(psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}, &metav1.ObjectMeta{}, &pod) {
			require.True(t, r.Allowed, "%s: %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
	require.Equal(t, 3, containers)
}

func TestSmokeNamespaceGrantsOnlyWhatTheExecutorNeeds(t *testing.T) {
	t.Parallel()
	out, err := Smoke{}.namespace("n")
	require.NoError(t, err)
	require.Equal(t, 4, bytes.Count(out, []byte("---\n")))
	require.Equal(t, 1, bytes.Count(out, []byte("- apiGroups:")))
	require.Contains(t, string(out), "pod-security.kubernetes.io/enforce: restricted")
}
