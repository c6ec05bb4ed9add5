package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
)

// maxPrevious holders are kept; the CRD allows no more.
const maxPrevious = 20

// member is the lock object in one cluster.
type member struct {
	name    string // empty for the only cluster
	clients *kube.Clients
	objects dynamic.ResourceInterface
	lock    *Lock

	mu   sync.Mutex
	seen observation
}

// observation is a version of the object and when this process first saw it.
// While the version is the same, nobody has written, whatever any clock says.
type observation struct {
	uid     types.UID
	version string
	since   time.Time
}

// view is one answer of one cluster.
type view struct {
	m     *member
	lock  *v1alpha1.DeploymentLock // nil when the object doesn't exist
	err   error                    // why the cluster gave no answer
	took  time.Duration            // for the answer
	still time.Duration            // that the object has stood still before our eyes
}

func newMember(name string, c *kube.Clients, l *Lock) *member {
	return &member{name: name, clients: c, lock: l, objects: c.Dynamic.Resource(v1alpha1.LockResource).Namespace(c.Namespace)}
}

// where names the cluster in a message; it is empty for the only one.
func (m *member) where() string {
	if m.name == "" {
		return ""
	}
	return " in cluster " + m.name
}

// read asks the cluster for the object.
func (m *member) read(ctx context.Context) view {
	start := m.lock.clock.Now()
	o, err := m.get(ctx)
	now := m.lock.clock.Now()
	v := view{m: m, lock: o, err: err, took: now.Sub(start)}
	if err == nil && o != nil {
		v.still = m.observe(o, now)
	}
	return v
}

// observe returns how long this version of the object is known here. The time
// of the answer counts, not of the question: a write before it is never missed.
func (m *member) observe(o *v1alpha1.DeploymentLock, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen.uid != o.UID || m.seen.version != o.ResourceVersion {
		m.seen = observation{uid: o.UID, version: o.ResourceVersion, since: now}
	}
	return now.Sub(m.seen.since)
}

// get returns nil without an error when the object doesn't exist.
func (m *member) get(ctx context.Context) (*v1alpha1.DeploymentLock, error) {
	ctx, cancel := context.WithTimeout(ctx, m.lock.requestTimeout())
	defer cancel()
	u, err := m.objects.Get(ctx, m.lock.name, metav1.GetOptions{})
	switch {
	case err == nil:
		return decode(u)
	case noSuchObject(err):
		return nil, nil
	default:
		return nil, m.explain(err, "get")
	}
}

// put creates or replaces the object; its resourceVersion is the comparison.
// The error is the API's own.
func (m *member) put(ctx context.Context, o *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error) {
	u, err := encode(o, m)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.lock.requestTimeout())
	defer cancel()
	if o.ResourceVersion == "" {
		u, err = m.objects.Create(ctx, u, metav1.CreateOptions{FieldManager: "rollcall"})
	} else {
		u, err = m.objects.Update(ctx, u, metav1.UpdateOptions{FieldManager: "rollcall"})
	}
	if err != nil {
		return nil, err
	}
	return decode(u)
}

// errMoved is a write that somebody else's write made void.
var errMoved = errors.New("the lock was changed by somebody else")

// change returns the object to write instead of the current one (nil when it
// doesn't exist), or nil when there is nothing to write.
type change func(current *v1alpha1.DeploymentLock) (*v1alpha1.DeploymentLock, error)

// swap writes by compare-and-swap. It starts from current without asking again
// and reads after every answer that leaves the outcome open: a conflict may be
// our own earlier write whose answer was lost. It returns the object as it is
// now, and when the write that made it so was sent at the earliest.
func (m *member) swap(ctx context.Context, current *v1alpha1.DeploymentLock, f change) (*v1alpha1.DeploymentLock, time.Time, error) {
	var sent, unsure time.Time
	var last error // survives a context that ends between two attempts
	fresh := true
	b := retry.WithMaxRetries(4, retry.WithJitterPercent(50, retry.NewExponential(m.lock.ttl/500+time.Millisecond)))
	o, err := retry.DoValue(ctx, b, func(ctx context.Context) (*v1alpha1.DeploymentLock, error) {
		if !fresh {
			o, err := m.get(ctx)
			if err != nil {
				last = err
				return nil, onlyTransient(err)
			}
			current = o
		}
		fresh = false
		want, err := f(current)
		if err != nil || want == nil {
			if !unsure.IsZero() {
				sent = unsure
			}
			return current, err
		}
		sent = m.lock.clock.Now()
		o, err := m.put(ctx, want)
		switch {
		case err == nil:
			return o, nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), noSuchObject(err) && want.ResourceVersion != "":
			last = fmt.Errorf("%w: %w", errMoved, m.explain(err, verb(want)))
			return nil, retry.RetryableError(last)
		case !apierrors.IsTooManyRequests(err) && unsure.IsZero():
			unsure = sent
		}
		last = m.explain(err, verb(want))
		return nil, onlyTransient(last)
	})
	switch {
	case err == nil:
		return o, sent, nil
	case ctx.Err() != nil && last != nil:
		err = fault.New(fault.Transient, "%w: %w", last, err)
	}
	return current, sent, err
}

func verb(o *v1alpha1.DeploymentLock) string {
	if o.ResourceVersion == "" {
		return "create"
	}
	return "update"
}

// onlyTransient lets go-retry repeat what may pass, and nothing else.
func onlyTransient(err error) error {
	if fault.Is(err, fault.Transient) {
		return retry.RetryableError(err)
	}
	return err
}

// explain gives an API error its exit code and advice.
func (m *member) explain(err error, verb string) error {
	if err == nil {
		return nil
	}
	l, ns := m.lock, m.clients.Namespace
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fault.New(fault.Config, "%s lock %s%s: namespace %s is being deleted: %w", verb, l.name, m.where(), ns, err).
			Do("there is nothing left to work on; stop the runs of that namespace")
	case apierrors.IsNotFound(err) && !noSuchObject(err):
		return fault.New(fault.Config, "%s lock %s%s: the cluster doesn't know DeploymentLocks: %w", verb, l.name, m.where(), err).
			Do("install the definitions: kubectl apply -k manifests/crds")
	case apierrors.IsNotFound(err) && verb == "create":
		return fault.New(fault.Config, "create lock %s%s: %w", l.name, m.where(), err).Do("create namespace %s or set ROLLCALL_NAMESPACE", ns)
	}
	err = kube.Explain(err, verb, "deploymentlocks."+v1alpha1.GroupVersion.Group, ns, l.name)
	if m.name != "" {
		return fmt.Errorf("cluster %s: %w", m.name, err)
	}
	return err
}

// noSuchObject tells a missing object from a missing API: the latter's 404 has
// no Status of its own, and client-go marks that.
func noSuchObject(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func decode(u *unstructured.Unstructured) (*v1alpha1.DeploymentLock, error) {
	o := new(v1alpha1.DeploymentLock)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fault.New(fault.Unexpected, "read lock %s: %w", u.GetName(), err)
	}
	return o, nil
}

func encode(o *v1alpha1.DeploymentLock, m *member) (*unstructured.Unstructured, error) {
	o.SetGroupVersionKind(v1alpha1.LockKind)
	o.Name, o.Namespace = m.lock.name, m.clients.Namespace
	c, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fault.New(fault.Unexpected, "write lock %s: %w", o.Name, err)
	}
	return &unstructured.Unstructured{Object: c}, nil
}

// end records how the current holding ended and leaves the lock free.
func end(o *v1alpha1.DeploymentLock, ending, by string, at time.Time) {
	if o.Spec.Holder == nil {
		return
	}
	now := metav1.NewMicroTime(at)
	p := v1alpha1.PreviousHolder{
		Holder: *o.Spec.Holder, Token: o.Spec.Token, AcquiredAt: o.Spec.AcquiredAt,
		EndedAt: &now, Ending: ending, By: clip(by, 1400),
	}
	o.Status.Previous = slices.Insert(o.Status.Previous, 0, p)
	if len(o.Status.Previous) > maxPrevious {
		o.Status.Previous = o.Status.Previous[:maxPrevious]
	}
	o.Spec.Holder, o.Spec.AcquiredAt, o.Spec.RenewedAt, o.Spec.Renewals = nil, nil, nil, 0
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// heldBy reports whether the lock object says that run uid holds it with token.
func heldBy(o *v1alpha1.DeploymentLock, uid string, token int64) bool {
	return o != nil && o.Spec.Holder != nil && o.Spec.Holder.Run.UID == uid && o.Spec.Token == token
}

// each asks all clusters at once and stops waiting when the answers so far are
// enough, or when ctx ends. Clusters without an answer by then are missing from
// the result; what is under way there goes on to its end, for a TTL at most: a
// cluster that has more to catch up with than the others must not be cut off
// every time because they are faster.
func each[T any](ctx context.Context, members []*member, ask func(context.Context, *member) T, enough func([]T) <-chan time.Time) []T {
	answers := make(chan T, len(members))
	for _, m := range members {
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.lock.ttl)
			defer cancel()
			answers <- ask(ctx, m)
		}()
	}
	var got []T
	var stop <-chan time.Time
	for len(got) < len(members) {
		select {
		case a := <-answers:
			got = append(got, a)
			if c := enough(got); c != nil && stop == nil {
				stop = c
			}
		case <-stop:
			return got
		case <-ctx.Done():
			return got
		}
	}
	return got
}

// atOnce is a limit that has passed.
func atOnce() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}

// readAll asks every member. Once a majority has answered, the others get one
// more moment; who is slower than that is named and not waited for.
func (l *Lock) readAll(ctx context.Context, members []*member) []view {
	straggle := min(time.Second, l.requestTimeout())
	got := each(ctx, members, func(ctx context.Context, m *member) view { return m.read(ctx) }, func(vs []view) <-chan time.Time {
		if len(answered(vs)) < majority(len(members)) {
			return nil
		}
		return l.clock.After(straggle)
	})
	for _, m := range members {
		if !slices.ContainsFunc(got, func(v view) bool { return v.m == m }) {
			got = append(got, view{m: m, took: straggle,
				err: fault.New(fault.Transient, "cluster %s: no answer within %s of the others'", m.name, straggle)})
		}
	}
	slices.SortFunc(got, func(a, b view) int { return slices.Index(members, a.m) - slices.Index(members, b.m) })
	l.reportTrouble(got)
	return got
}

func answered(vs []view) []view {
	return slices.DeleteFunc(slices.Clone(vs), func(v view) bool { return v.err != nil })
}

// reportTrouble logs once when a member cluster stops answering or is slow, and
// once when it is back.
func (l *Lock) reportTrouble(vs []view) {
	for _, v := range vs {
		slow := v.took > l.requestTimeout()/2
		switch {
		case v.m.name == "":
		case v.err != nil && l.once(l.trouble, v.m.name):
			l.log.Warn("member cluster gives no answer", "cluster", v.m.name, "error", v.err.Error())
		case v.err == nil && slow && l.once(l.trouble, v.m.name):
			l.log.Warn("member cluster is slow", "cluster", v.m.name, "took", v.took.Round(time.Millisecond).String())
		case v.err == nil && !slow && l.forget(l.trouble, v.m.name):
			l.log.Info("member cluster answers again", "cluster", v.m.name)
		}
	}
}
