package locktest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/kube"
)

// Client makes clients for one cluster with a network of their own. config is
// not changed.
func Client(t testing.TB, config *rest.Config, namespace string) (*kube.Clients, *Network) {
	t.Helper()
	n := &Network{}
	c := rest.CopyConfig(config)
	c.UserAgent = t.Name()
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		n.next = next
		return n
	})
	k, err := kube.New(c, namespace)
	require.NoError(t, err)
	return k, n
}
