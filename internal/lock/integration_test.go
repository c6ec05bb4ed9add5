//go:build integration

package lock_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/lock"
	"github.com/rollcall-dev/rollcall/internal/lock/locktest"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

// ttl is as short as a busy machine allows: a request may take an eighth of it.
const ttl = 9 * time.Second

// short gives a lock that TTL, for tests in which it runs out.
func short(o *lock.Options) { o.TTL = ttl }

// busy gives a lock a TTL that doesn't run out on a busy machine, for tests that
// look at renewals.
func busy(o *lock.Options) { o.TTL = 30 * time.Second }

func TestMain(m *testing.M) {
	// These tests wait more than they work; more of them fit side by side than
	// there are processors. A flag on the command line still wins.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(kubetest.Main(m))
}

// site is a namespace of a real API server that knows the CRDs.
type site struct {
	cp     *kubetest.ControlPlane
	config *rest.Config
	ns     string
}

var applied sync.Map // of *kubetest.ControlPlane to *sync.Once

func newSite(t *testing.T, opts ...kubetest.Option) site {
	t.Helper()
	return siteOf(t, kubetest.Start(t, opts...))
}

func siteOf(t *testing.T, cp *kubetest.ControlPlane) site {
	t.Helper()
	once, _ := applied.LoadOrStore(cp, new(sync.Once))
	once.(*sync.Once).Do(func() {
		cp.ApplyCRDs(t, filepath.Join("..", "..", "manifests", "crds"))
		cp.ApplyCRDs(t, filepath.Join("testdata", "crds"))
	})
	return site{cp: cp, config: cp.Config(), ns: cp.NewNamespace(t, nil)}
}

// get reads the lock object as an onlooker; nil when it doesn't exist.
func (s site) get(t *testing.T) *v1alpha1.DeploymentLock {
	t.Helper()
	u, err := dynamic.NewForConfigOrDie(s.config).Resource(v1alpha1.LockResource).Namespace(s.ns).Get(t.Context(), "demo", metav1.GetOptions{})
	require.NoError(t, err)
	o := new(v1alpha1.DeploymentLock)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o))
	return o
}

func (s site) kube() kubernetes.Interface { return kubernetes.NewForConfigOrDie(s.config) }

// run is one run's view of the lock.
type run struct {
	*lock.Lock
	net *locktest.Network
	log *logBuffer
}

func (s site) run(t *testing.T, uid string, edit ...func(*lock.Options)) run {
	t.Helper()
	c, n := locktest.Client(t, s.config, s.ns)
	o := lock.Options{
		Clients: c, Name: "demo",
		Holder: v1alpha1.Holder{
			Run: v1alpha1.RunReference{UID: uid}, User: uid, Host: "host-of-" + uid, Pod: "pod-of-" + uid,
			Operation: "scale-up", Step: "stake", Reason: "more validators",
		},
	}
	log := &logBuffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	for _, e := range edit {
		e(&o)
	}
	l, err := lock.New(o)
	require.NoError(t, err)
	return run{Lock: l, net: n, log: log}
}

func (r run) acquire(t *testing.T) *lock.Held {
	t.Helper()
	h, err := r.Acquire(t.Context(), 0)
	require.NoError(t, err)
	return h
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// lines that contain s.
func (l *logBuffer) lines(s string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, s) {
			n++
		}
	}
	return n
}

func requireCode(t *testing.T, code fault.Code, err error, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, fault.CodeOf(err), "code of: %v", err)
	for _, p := range parts {
		require.ErrorContains(t, err, p)
	}
}

// lostWithin waits for the context of Keep to end and returns its cause.
func lostWithin(kept context.Context, t *testing.T, d time.Duration) error {
	t.Helper()
	select {
	case <-kept.Done():
		return context.Cause(kept)
	case <-time.After(d):
		require.Fail(t, "the context of Keep goes on", "after %s", d)
		return nil
	}
}

// withFloor reads some object through the run's own client, as the steps read
// the ValidatorNetwork, and answers 7.
func withFloor(s site) func(*lock.Options) {
	return func(o *lock.Options) {
		c := o.Clients
		o.Floor = func(ctx context.Context) (int64, error) {
			_, err := c.Kube.CoreV1().ConfigMaps(s.ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err != nil && !strings.Contains(err.Error(), "not found") {
				return 0, err
			}
			return 7, nil
		}
	}
}
