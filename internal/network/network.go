// Package network keeps the ValidatorNetwork: the deployment's recorded
// decisions and facts, and the story of what was done to it.
//
// It guarantees that every write is a compare-and-swap that carries the run's
// fencing token, and that a run with an older token than the object's is told
// so (fault.LockLost) instead of writing. It doesn't guarantee that the record
// is true today: facts come from the chain, and a run resumes from those.
package network

import (
	"context"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

const resource = "validatornetworks.rollcall.dev"

// conflictRetries bounds how often a write that lost a race is tried again.
const conflictRetries = 8

// Store reads and writes one ValidatorNetwork.
type Store struct {
	clients *kube.Clients
	name    string
	now     func() time.Time
}

// Find returns the store of the named network, or of the only one in the
// namespace when name is empty.
func Find(ctx context.Context, c *kube.Clients, name string) (*Store, error) {
	if name != "" {
		return &Store{clients: c, name: name, now: time.Now}, nil
	}
	l, err := c.Dynamic.Resource(v1alpha1.NetworkResource).Namespace(c.Namespace).List(ctx, metav1.ListOptions{Limit: 10})
	if err != nil {
		return nil, explain(err, "list", c.Namespace, "")
	}
	var names []string
	for _, o := range l.Items {
		names = append(names, o.GetName())
	}
	switch len(names) {
	case 1:
		return &Store{clients: c, name: names[0], now: time.Now}, nil
	case 0:
		return nil, fault.New(fault.Config, "find network: there is no ValidatorNetwork in namespace %s", c.Namespace).
			Do("create one (kubectl apply -f network.yaml) or set ROLLCALL_NAMESPACE")
	}
	return nil, fault.New(fault.Config, "find network: namespace %s has several ValidatorNetworks: %s", c.Namespace, strings.Join(names, ", ")).
		Do("set ROLLCALL_NETWORK")
}

// Name of the network.
func (s *Store) Name() string { return s.name }

func explain(err error, verb, namespace, name string) error {
	if apierrors.IsNotFound(err) {
		if name != "" && strings.Contains(err.Error(), name) {
			return fault.New(fault.Config, "%s network: ValidatorNetwork %s/%s doesn't exist", verb, namespace, name).
				Do("check ROLLCALL_NETWORK and ROLLCALL_NAMESPACE; kubectl get vnet -A lists all")
		}
		return fault.New(fault.Config, "%s network: the cluster doesn't know %s: %w", verb, resource, err).
			Do("install the custom resources: kubectl apply --server-side -k manifests/crds")
	}
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "fenced:") {
		return fault.New(fault.LockLost, "%s network %s/%s: refused by the API server: %w", verb, namespace, name, err)
	}
	return kube.Explain(err, verb, resource, namespace, name)
}

// Get reads the network.
func (s *Store) Get(ctx context.Context) (*v1alpha1.ValidatorNetwork, error) {
	_, n, err := s.get(ctx)
	return n, err
}

// get returns the object as it came, too.
func (s *Store) get(ctx context.Context) (*unstructured.Unstructured, *v1alpha1.ValidatorNetwork, error) {
	u, err := s.clients.Dynamic.Resource(v1alpha1.NetworkResource).Namespace(s.clients.Namespace).Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, explain(err, "get", s.clients.Namespace, s.name)
	}
	n, err := fromUnstructured(u)
	return u, n, err
}

func fromUnstructured(u *unstructured.Unstructured) (*v1alpha1.ValidatorNetwork, error) {
	n := &v1alpha1.ValidatorNetwork{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
		return nil, fault.New(fault.Config, "read network %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return n, nil
}

// Token returns the highest fencing token that the network remembers; 0 when
// it remembers none.
func (s *Store) Token(ctx context.Context) (int64, error) {
	n, err := s.Get(ctx)
	if err != nil {
		return 0, err
	}
	return max(n.Status.Token, n.Spec.Token), nil
}

// UpdateStatus changes the status as the run with the given token. mutate may
// be called several times, each time on a fresh copy; it returns false when
// there is nothing to write. It sends a patch of the difference only, so fields
// that this version doesn't know stay.
func (s *Store) UpdateStatus(ctx context.Context, token int64, mutate func(*v1alpha1.ValidatorNetwork) bool) (*v1alpha1.ValidatorNetwork, error) {
	return s.update(ctx, token, "status", func(n *v1alpha1.ValidatorNetwork) bool {
		changed := mutate(n)
		n.Status.Token = token
		return changed
	})
}

// SetWanted records the wanted number of validators as the run with the token.
func (s *Store) SetWanted(ctx context.Context, token int64, validators int32) (*v1alpha1.ValidatorNetwork, error) {
	return s.update(ctx, token, "", func(n *v1alpha1.ValidatorNetwork) bool {
		changed := n.Spec.Validators != validators
		n.Spec.Validators, n.Spec.Token = validators, token
		return changed
	})
}

func (s *Store) update(ctx context.Context, token int64, sub string, mutate func(*v1alpha1.ValidatorNetwork) bool) (out *v1alpha1.ValidatorNetwork, err error) {
	var subs []string
	if sub != "" {
		subs = []string{sub}
	}
	b := retry.WithMaxRetries(conflictRetries, retry.WithJitter(20*time.Millisecond, retry.NewConstant(50*time.Millisecond)))
	err = retry.Do(ctx, b, func(ctx context.Context) error {
		raw, old, err := s.get(ctx)
		if err != nil {
			return err
		}
		if t := max(old.Status.Token, old.Spec.Token); t > token {
			return fault.New(fault.LockLost, "update network %s: a run with token %d has written it since, this run has %d", s.name, t, token)
		}
		changed := old.DeepCopy()
		if !mutate(changed) {
			out = old
			return nil
		}
		patch, err := difference(raw.Object, old, changed)
		if err != nil {
			return err
		}
		u, err := s.clients.Dynamic.Resource(v1alpha1.NetworkResource).Namespace(s.clients.Namespace).
			Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "rollcall"}, subs...)
		switch {
		case apierrors.IsConflict(err):
			return retry.RetryableError(fault.New(fault.Transient, "update network %s: %w", s.name, err))
		case err != nil:
			return explain(err, "patch", s.clients.Namespace, s.name)
		}
		out, err = fromUnstructured(u)
		return err
	})
	return out, err
}

// EventType is Normal or Warning.
type EventType string

// Event types.
const (
	Normal  EventType = "Normal"
	Warning EventType = "Warning"
)

// Event records an event about the network. Events are for people: a failure
// is returned for the log, and never stops an operation.
func (s *Store) Event(ctx context.Context, n *v1alpha1.ValidatorNetwork, t EventType, reason, action, note string) error {
	e := kube.Event{
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.NetworkKind.Kind,
			Namespace: n.Namespace, Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
		},
		Type: string(t), Reason: reason, Action: action, Note: note,
	}
	if op := n.Status.LastOperation; op != nil {
		e.Instance = op.Run.Name
	}
	return s.clients.Record(ctx, e, s.now())
}
