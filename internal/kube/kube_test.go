package kube_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, c := range map[string]struct {
		err   error
		code  fault.Code
		parts []string
	}{
		"a missing right is named with verb, resource and namespace": {
			apierrors.NewForbidden(secrets, "k", errors.New("no")), fault.Config,
			[]string{"get secrets net/k", "grant the right to get secrets in namespace net to this service account"},
		},
		"credentials nobody knows":        {apierrors.NewUnauthorized("who?"), fault.Config, []string{"credentials are not accepted"}},
		"something that isn't there":      {apierrors.NewNotFound(secrets, "k"), fault.Config, []string{"not found"}},
		"something that makes no sense":   {apierrors.NewBadRequest("what?"), fault.Config, []string{"what?"}},
		"something the server won't have": {apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "k", nil), fault.Config, []string{"invalid"}},
		"a server that is overwhelmed":    {apierrors.NewTooManyRequests("later", 1), fault.Transient, []string{"later"}},
		"a server in trouble":             {apierrors.NewInternalError(errors.New("oops")), fault.Transient, []string{"oops"}},
		"a request that took too long":    {apierrors.NewTimeoutError("slow", 1), fault.Transient, []string{"slow"}},
		"a connection that broke":         {errors.New("connection refused"), fault.Transient, []string{"get secrets net/k: connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := kube.Explain(c.err, "get", "secrets", "net", "k")
			require.Equal(t, c.code, fault.CodeOf(err))
			require.ErrorIs(t, err, c.err)
			for _, p := range c.parts {
				require.ErrorContains(t, err, p)
			}
		})
	}
	require.NoError(t, kube.Explain(nil, "get", "secrets", "net", "k"))
}

const kubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"x",
	"clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1"}}],
	"contexts":[{"name":"x","context":{"cluster":"c","namespace":"net"}}]}`

func TestConfigOutsideOfACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(kubeconfig), 0o600))
	t.Setenv("KUBECONFIG", path)
	c, ns, err := kube.Config("")
	require.NoError(t, err)
	require.Equal(t, "https://192.0.2.1", c.Host)
	require.Equal(t, "net", ns, "the kubeconfig's own namespace")
	_, ns, err = kube.Config("other")
	require.NoError(t, err)
	require.Equal(t, "other", ns)
}

func TestConfigSaysWhatToDoWithoutACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	_, _, err := kube.Config("net")
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "run inside of a cluster or set KUBECONFIG")

	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte("{nonsense"), 0o600))
	t.Setenv("KUBECONFIG", path)
	_, _, err = kube.Config("")
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "set KUBECONFIG")
}

func TestNewBoundsEveryRequestAndLeavesTheConfigurationAlone(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "https://192.0.2.1"}
	c, err := kube.New(config, "net")
	require.NoError(t, err)
	require.Equal(t, "net", c.Namespace)
	require.Zero(t, config.Timeout)
	require.Less(t, kube.RequestTimeout.Seconds(), 180.0/3, "a hanging renewal ends before the lock does")
	_, err = kube.New(&rest.Config{Host: "https://192.0.2.1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("nonsense")}}, "net")
	require.Equal(t, fault.Config, fault.CodeOf(err))
}
