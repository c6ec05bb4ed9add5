// Package kube makes the Kubernetes clients that every step uses, and turns
// API errors into errors a person understands.
//
// It guarantees that every request has a deadline (RequestTimeout) and that a
// missing right is named with verb, resource and namespace. It doesn't retry:
// callers know whether a retry is safe.
package kube

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// RequestTimeout bounds every single API request. It is far below the shortest
// lock TTL divided by three, so that a hanging renewal ends before the lock does.
const RequestTimeout = 5 * time.Second

const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Clients are the typed and the dynamic client for one cluster.
type Clients struct {
	Kube      kubernetes.Interface
	Dynamic   dynamic.Interface
	Namespace string
}

// Config returns the cluster's REST configuration: the pod's own service
// account inside of a cluster, else the kubeconfig of KUBECONFIG or
// ~/.kube/config. namespace overrides the one that configuration names.
func Config(namespace string) (*rest.Config, string, error) {
	c, err := rest.InClusterConfig()
	if err == nil {
		if namespace == "" {
			b, err := os.ReadFile(namespaceFile)
			if err != nil {
				return nil, "", fault.New(fault.Config, "read namespace: %w", err).Do("set ROLLCALL_NAMESPACE")
			}
			namespace = strings.TrimSpace(string(b))
		}
		return c, namespace, nil
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fault.New(fault.Config, "read kubeconfig: %w", err).Do("set KUBECONFIG")
		}
	}
	if c, err = loader.ClientConfig(); err != nil {
		return nil, "", fault.New(fault.Config, "find a cluster: %w", err).Do("run inside of a cluster or set KUBECONFIG")
	}
	return c, namespace, nil
}

// Contexts returns clients for every context of a kubeconfig file, by its name.
func Contexts(path, namespace string) (map[string]*Clients, error) {
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fault.New(fault.Config, "read the member clusters' kubeconfig: %w", err).Do("mount it from its Secret, or set ROLLCALL_CLUSTERS_KUBECONFIG")
	}
	all := map[string]*Clients{}
	for name := range raw.Contexts {
		c, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, nil, nil).ClientConfig()
		if err != nil {
			return nil, fault.New(fault.Config, "read cluster %s of %s: %w", name, path, err)
		}
		if all[name], err = New(c, namespace); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// New makes clients from a REST configuration, sharing one HTTP transport.
func New(c *rest.Config, namespace string) (*Clients, error) {
	c = rest.CopyConfig(c)
	c.Timeout = RequestTimeout
	c.QPS, c.Burst = 50, 100
	if c.UserAgent == "" {
		c.UserAgent = "rollcall"
	}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fault.New(fault.Config, "configure the cluster's client: %w", err)
	}
	return newFor(c, h, namespace)
}

func newFor(c *rest.Config, h *http.Client, namespace string) (*Clients, error) {
	k, err := kubernetes.NewForConfigAndClient(c, h)
	if err != nil {
		return nil, fault.New(fault.Config, "configure the cluster's client: %w", err)
	}
	d, err := dynamic.NewForConfigAndClient(c, h)
	if err != nil {
		return nil, fault.New(fault.Config, "configure the cluster's client: %w", err)
	}
	return &Clients{Kube: k, Dynamic: d, Namespace: namespace}, nil
}

// Explain classifies an API error. verb, resource and name say what was tried.
func Explain(err error, verb, resource, namespace, name string) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf("%s %s %s/%s", verb, resource, namespace, name)
	switch {
	case apierrors.IsForbidden(err):
		return fault.New(fault.Config, "%s: %w", what, err).
			Do("grant the right to %s %s in namespace %s to this service account (manifests/base/rbac.yaml)", verb, resource, namespace)
	case apierrors.IsUnauthorized(err):
		return fault.New(fault.Config, "%s: %w", what, err).Do("the credentials are not accepted by the cluster")
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fault.New(fault.Config, "%s: %w", what, err)
	default:
		return fault.New(fault.Transient, "%s: %w", what, err)
	}
}
