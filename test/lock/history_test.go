//go:build integration

package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/lock"
	"github.com/rollcall-dev/rollcall/internal/lock/locktest"
	"github.com/rollcall-dev/rollcall/test/kubetest"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go has a line for every injected fault
	os.Exit(kubetest.Main(m))
}

const (
	// ttl is short so that many holdings end by it; an eighth of it bounds a request.
	ttl = 4 * time.Second
	// locks are worked on side by side, because each one is idle most of the time.
	locks = 10
	// contenders work on each lock.
	contenders = 3
	// checkLimit bounds the search for an order; a good history takes a second.
	checkLimit = 2 * time.Minute
)

// cluster is one member.
type cluster struct {
	name   string
	config *rest.Config
	ns     string
}

// world is where a history happens.
type world struct {
	t        *testing.T
	clusters []cluster
	unfenced bool // effects go to something that doesn't look at tokens
	wall     bool // the lock compares wall clocks

	seed   uint64
	rounds int
	start  time.Time
	pause  int          // one in so many effects comes after a pause longer than the TTL
	left   atomic.Int64 // lock operations still to do
	until  time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	effects map[string][]applied
	counts  map[string]int
}

// applied is an effect in the order in which the API server applied them.
type applied struct{ order, token int64 }

func newWorld(t *testing.T, control ...*kubetest.ControlPlane) *world {
	w := &world{t: t, seed: seedOf(t), pause: 60, effects: map[string][]applied{}, counts: map[string]int{}}
	for i, cp := range control {
		cp.ApplyCRDs(t, filepath.Join("..", "..", "manifests", "crds"))
		name := ""
		if len(control) > 1 {
			name = string(rune('a' + i))
		}
		w.clusters = append(w.clusters, cluster{name: name, config: cp.Config(), ns: cp.NewNamespace(t, nil)})
	}
	t.Logf("LOCK_SEED=%d", w.seed)
	return w
}

func seedOf(t *testing.T) uint64 {
	if s := os.Getenv("LOCK_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "LOCK_SEED")
		return seed
	}
	return rand.Uint64()
}

// goal is how many lock operations to do.
func goal(t *testing.T) int64 {
	s := os.Getenv("LOCK_OPS")
	if s == "" {
		return 250
	}
	ops, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err, "LOCK_OPS")
	return ops
}

// playLimit bounds a whole history; a good machine does a thousand operations a minute.
const playLimit = 40 * time.Minute

// since is the history's time.
func (w *world) since(t time.Time) int64 { return int64(t.Sub(w.start)) }

// record adds an operation. Effects and kills don't count towards the goal.
func (w *world) record(client int, in input, out output, call time.Time) {
	now := time.Now()
	out.Returned = now.Sub(w.start)
	o := porcupine.Operation{ClientId: client, Input: in, Output: out, Call: w.since(call), Return: w.since(now)}
	if out.Unknown {
		o.Return = never
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, o)
	w.counts[string(in.Kind)]++
	if len(w.history)%1000 == 0 {
		w.t.Logf("%d operations in %s", len(w.history), time.Since(w.start).Round(time.Second))
	}
	if in.Kind != effect && in.Kind != kill {
		w.left.Add(-1)
	}
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

func (w *world) done() bool { return w.left.Load() <= 0 || time.Now().After(w.until) || w.t.Failed() }

// play lets everybody work until the goal is reached, then checks.
func (w *world) play() porcupine.CheckResult {
	ops := goal(w.t)
	// A short history has as many pauses as a long one has in a while.
	w.pause = int(min(60, max(4, ops/40)))
	w.left.Store(ops)
	w.round(playLimit)
	require.LessOrEqual(w.t, w.left.Load(), int64(0), "lock operations missing after %s", playLimit)
	result, info := w.check()
	if result != porcupine.Ok {
		w.t.Logf("the history is drawn in %s", w.draw(info))
	}
	return result
}

// playUntilIllegal is for broken locks: it goes on until the checker notices, or
// for two minutes. It returns the drawing of the history.
func (w *world) playUntilIllegal(round time.Duration) (porcupine.CheckResult, string) {
	w.left.Store(1 << 40)
	for begun := time.Now(); ; {
		w.round(round)
		result, info := w.check()
		if result == porcupine.Illegal && (!w.unfenced || w.outOfOrder() > 0) {
			return result, w.draw(info)
		}
		if time.Since(begun) > 2*time.Minute {
			return result, ""
		}
	}
}

// round starts the clients and waits for their last session to end.
func (w *world) round(limit time.Duration) {
	w.rounds++
	if w.rounds == 1 {
		w.start = time.Now()
		for i := range locks {
			w.prepare(fmt.Sprintf("lock-%d", i))
		}
	}
	w.until = time.Now().Add(limit)
	var wg sync.WaitGroup
	for i := range locks {
		name := fmt.Sprintf("lock-%d", i)
		for j := range contenders + 1 {
			id := i*(contenders+1) + j
			c := &client{w: w, id: id, lock: name, rand: rand.New(rand.NewPCG(w.seed, uint64(w.rounds*1000+id)))}
			switch {
			case j < contenders:
				wg.Go(c.work)
			case !w.wall:
				wg.Go(c.disturb)
			}
		}
	}
	wg.Wait()
}

func (w *world) check() (porcupine.CheckResult, porcupine.LinearizationInfo) {
	begun := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model(ttl), w.history, checkLimit)
	w.t.Logf("%d operations in %s, checked in %s: %s; %v", len(w.history), begun.Sub(w.start).Round(time.Second),
		time.Since(begun).Round(time.Millisecond), result, w.counts)
	return result, info
}

func (w *world) draw(info porcupine.LinearizationInfo) string {
	f, err := os.CreateTemp("", "rollcall-lock-history-*.html")
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, f.Close()) }()
	require.NoError(w.t, porcupine.Visualize(model(ttl), info, f))
	return f.Name()
}

// prepare makes what the lock protects, and for the broken lock, itself.
func (w *world) prepare(name string) {
	c := w.clusters[0]
	d := dynamic.NewForConfigOrDie(c.config)
	_, err := d.Resource(v1alpha1.NetworkResource).Namespace(c.ns).Create(w.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.NetworkKind.Kind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"validators": int64(4), "chain": map[string]any{"chainID": "test", "rpc": "http://localhost:1"},
			"stake": map[string]any{"amount": "1stake"},
		},
	}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = kubernetes.NewForConfigOrDie(c.config).CoreV1().ConfigMaps(c.ns).Create(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	if w.wall {
		_, err = d.Resource(v1alpha1.LockResource).Namespace(c.ns).Create(w.t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.LockKind.Kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"token": int64(0)},
		}}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// network effects are fenced by the ValidatorNetwork's CEL rule, as the
// product's are; others by nothing.
type network struct {
	d        dynamic.Interface
	ns, name string
	unfenced bool
}

func (n network) apply(ctx context.Context, token int64) (int64, error) {
	var o *unstructured.Unstructured
	var err error
	if n.unfenced {
		o, err = n.d.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(n.ns).
			Patch(ctx, n.name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"token":"%d","at":"%d"}}`, token, time.Now().UnixNano()), metav1.PatchOptions{})
	} else {
		o, err = n.d.Resource(v1alpha1.NetworkResource).Namespace(n.ns).
			Patch(ctx, n.name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"token":%d,"height":%d}}`, token, time.Now().UnixNano()), metav1.PatchOptions{}, "status")
	}
	switch {
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "fenced"):
		return 0, errRefused
	case err != nil:
		return 0, err
	}
	return strconv.ParseInt(o.GetResourceVersion(), 10, 64)
}

// client is one worker: it starts run after run on one lock.
type client struct {
	w    *world
	id   int
	lock string
	rand *rand.Rand
	runs int

	mu     sync.Mutex // the networks' rules are asked from many goroutines
	faults *rand.Rand
	frozen chan struct{} // closed when the process goes on; nil when it runs
}

// one in n.
func (c *client) chance(n int) bool { return c.rand.IntN(n) == 0 }

func (c *client) pause(d time.Duration) { time.Sleep(d) }

// rule makes this client's requests fail now and then, and hang while it is frozen.
func (c *client) rule(r *http.Request) *locktest.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen != nil {
		return &locktest.Fault{Hang: true}
	}
	switch n := c.faults.IntN(200); {
	case n < 3:
		return &locktest.Fault{Lose: true}
	case n < 5:
		return &locktest.Fault{Status: http.StatusInternalServerError}
	case n < 6:
		return &locktest.Fault{Status: http.StatusTooManyRequests}
	case n < 8:
		return &locktest.Fault{Refuse: true}
	case n < 9:
		return &locktest.Fault{Hang: true}
	case n < 20:
		return &locktest.Fault{Before: time.Duration(c.faults.IntN(50)) * time.Millisecond, After: time.Duration(c.faults.IntN(50)) * time.Millisecond}
	}
	return nil
}

func (c *client) freeze(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = nil
	if on {
		c.frozen = make(chan struct{})
	}
}

// run makes a new run with a clock of its own, and its object if it has one.
func (c *client) run(uid string, ref v1alpha1.RunReference) (locker, *lock.Lock) {
	c.mu.Lock()
	c.faults = rand.New(rand.NewPCG(c.rand.Uint64(), 1))
	c.mu.Unlock()
	members := map[string]*kube.Clients{}
	for _, cl := range c.w.clusters {
		k, n := locktest.Client(c.w.t, cl.config, cl.ns)
		if !c.w.wall {
			n.Set(c.rule)
		}
		members[cl.name] = k
	}
	offset := time.Duration(c.rand.Int64N(int64(10*time.Hour))) - 5*time.Hour
	wall := func() time.Time { return time.Now().Add(offset) }
	if c.w.wall {
		cl := c.w.clusters[0]
		return &wallClock{objects: members[cl.name].Dynamic.Resource(v1alpha1.LockResource).Namespace(cl.ns), name: c.lock, run: uid, ttl: ttl, wall: wall}, nil
	}
	if ref.UID == "" {
		ref.UID = uid
	}
	o := lock.Options{Members: members, Name: c.lock, TTL: ttl, Wall: wall, Holder: v1alpha1.Holder{Run: ref, User: uid, Operation: "test"}, Logger: slog.New(slog.DiscardHandler)}
	if k, ok := members[""]; ok {
		o.Clients, o.Members = k, nil
	}
	l, err := lock.New(o)
	require.NoError(c.w.t, err)
	return genuine{Lock: l, ttl: ttl}, l
}

func (c *client) work() {
	for !c.w.done() {
		c.session()
	}
}

// session is the life of one run.
func (c *client) session() {
	c.runs++
	uid := fmt.Sprintf("%d-%d-%d", c.w.rounds, c.id, c.runs)
	ref, killed := c.object(uid)
	l, _ := c.run(uid, ref)
	ctx, cancel := context.WithCancel(c.w.t.Context())
	defer cancel()
	if c.chance(20) { // dies anywhere, even in the middle of a request
		go func() {
			time.Sleep(time.Duration(rand.Int64N(int64(ttl))))
			cancel()
		}()
	}
	call := time.Now()
	h, err := l.Acquire(ctx, time.Duration(c.rand.Int64N(int64(2*ttl))))
	if err != nil {
		c.w.count("acquire: " + fault.CodeOf(err).String())
		c.pause(time.Duration(c.rand.Int64N(int64(ttl / 20))))
		return
	}
	if r := h.Renewed(); r.After(call) {
		call = r // the write that won was sent no earlier
	}
	c.w.record(c.id, input{Lock: c.lock, Kind: acquire}, output{Token: h.Token(), Renewed: h.Renewed().Sub(c.w.start)}, call)
	c.hold(ctx, l, h)
	switch c.rand.IntN(10) {
	case 0: // gone without a word; others wait for the TTL
		c.w.count("abandoned")
	case 1, 2: // gone, and its object with it, if it has one
		killed(h.Token())
	default:
		call := time.Now()
		err := h.Release(ctx)
		c.settle(release, h, call, err)
	}
}

// hold works with the lock for a while.
func (c *client) hold(ctx context.Context, l locker, h holding) {
	work := ctx
	if c.chance(2) {
		var stop func()
		work, stop = h.Keep(ctx)
		defer stop()
	}
	target := network{d: dynamic.NewForConfigOrDie(c.w.clusters[0].config), ns: c.w.clusters[0].ns, name: c.lock, unfenced: c.w.unfenced}
	for range 8 + c.rand.IntN(60) {
		switch c.rand.IntN(4) {
		case 0, 1:
			call := time.Now()
			err := h.Check(work)
			c.settle(confirm, h, call, err)
			if err != nil && !c.w.unfenced {
				return
			}
		case 2:
			if c.chance(c.w.pause) {
				c.oversleep()
			}
			c.affect(ctx, target, h.Token())
		default:
			if c.chance(3) { // a retried step asks again
				call := time.Now()
				again, err := l.Acquire(ctx, 0)
				if err == nil && again.Token() == h.Token() {
					c.settle(confirm, again, call, nil)
				} else if err == nil {
					// The holding was over and this is a new one.
					c.w.record(c.id, input{Lock: c.lock, Kind: acquire, Token: h.Token()}, output{Token: again.Token(), Renewed: again.Renewed().Sub(c.w.start)}, maxTime(call, again.Renewed()))
					call := time.Now()
					c.settle(release, again, call, again.Release(ctx))
					return
				}
			}
			c.pause(time.Duration(c.rand.Int64N(int64(ttl / 60))))
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// oversleep stops this client as SIGSTOP does, for longer than the TTL.
func (c *client) oversleep() {
	c.w.count("paused")
	c.freeze(true)
	c.pause(ttl + time.Duration(c.rand.Int64N(int64(ttl))))
	c.freeze(false)
}

// settle records what is known about an operation on a holding.
func (c *client) settle(k kind, h holding, call time.Time, err error) {
	in := input{Lock: c.lock, Kind: k, Token: h.Token()}
	switch {
	case err == nil:
		c.w.record(c.id, in, output{Renewed: h.Renewed().Sub(c.w.start)}, call)
	case fault.Is(err, fault.LockLost):
		c.w.count(string(k) + ": lost")
	default:
		c.w.count(string(k) + ": unknown")
		if k == release {
			c.w.record(c.id, in, output{Unknown: true}, call)
		}
	}
}

func (c *client) affect(ctx context.Context, t target, token int64) {
	in := input{Lock: c.lock, Kind: effect, Token: token}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	call := time.Now()
	order, err := t.apply(ctx, token)
	switch {
	case err == nil:
		c.w.record(c.id, in, output{}, call)
		c.w.mu.Lock()
		c.w.effects[c.lock] = append(c.w.effects[c.lock], applied{order: order, token: token})
		c.w.mu.Unlock()
	case errors.Is(err, errRefused):
		c.w.count("effect: refused")
		c.w.record(c.id, in, output{Refused: true}, call)
	default:
		c.w.record(c.id, in, output{Unknown: true}, call)
	}
}

// object gives every third run a Job, and a way to end it.
func (c *client) object(uid string) (v1alpha1.RunReference, func(token int64)) {
	if c.w.wall || !c.chance(3) {
		return v1alpha1.RunReference{}, func(int64) { c.w.count("abandoned") }
	}
	cl := c.w.clusters[c.rand.IntN(len(c.w.clusters))]
	jobs := kubernetes.NewForConfigOrDie(cl.config).BatchV1().Jobs(cl.ns)
	suspend, name := true, "run-"+uid
	j, err := jobs.Create(c.w.t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Suspend: &suspend,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}}}, metav1.CreateOptions{})
	if err != nil {
		return v1alpha1.RunReference{}, func(int64) { c.w.count("abandoned") }
	}
	return v1alpha1.RunReference{APIVersion: "batch/v1", Kind: "Job", Name: name, Cluster: cl.name, UID: string(j.UID)}, func(token int64) {
		call, policy := time.Now(), metav1.DeletePropagationBackground
		err := jobs.Delete(c.w.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
		c.w.record(c.id, input{Lock: c.lock, Kind: kill, Token: token}, output{Unknown: err != nil}, call)
	}
}

// disturb forces the lock open now and then, and writes into it what means
// nothing, so that others' writes conflict.
func (c *client) disturb() {
	_, l := c.run("boss", v1alpha1.RunReference{})
	for !c.w.done() {
		c.pause(time.Duration(c.rand.Int64N(int64(2 * ttl))))
		cl := c.w.clusters[c.rand.IntN(len(c.w.clusters))]
		_, err := dynamic.NewForConfigOrDie(cl.config).Resource(v1alpha1.LockResource).Namespace(cl.ns).Patch(c.w.t.Context(), c.lock, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, c.rand.Uint64()), metav1.PatchOptions{})
		if err == nil {
			c.w.count("touched")
		}
		if !c.chance(3) {
			continue
		}
		ctx, cancel := context.WithTimeout(c.w.t.Context(), 10*time.Second)
		info, err := l.Inspect(ctx)
		if err == nil && info.Held {
			in, call := input{Lock: c.lock, Kind: force, Token: info.Token}, time.Now()
			switch err := l.ForceUnlock(ctx, info.ID, "test"); {
			case err == nil:
				c.w.record(c.id, in, output{}, call)
			case !fault.Is(err, fault.Config): // Config means that it was another holding's turn
				c.w.record(c.id, in, output{Unknown: true}, call)
			}
		}
		cancel()
	}
}

// outOfOrder counts effects below their predecessor, as the API server ordered them.
func (w *world) outOfOrder() int {
	n := 0
	for _, es := range w.effects {
		slices.SortFunc(es, func(a, b applied) int { return int(a.order - b.order) })
		for i := 1; i < len(es); i++ {
			if es[i].token < es[i-1].token {
				n++
			}
		}
	}
	return n
}

func TestHistoriesOfOneClusterAreLinearizable(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	result := w.play()
	require.Equal(t, porcupine.Ok, result)
	require.Zero(t, w.outOfOrder(), "effects out of token order")
	w.requireProgress()
}

func TestHistoriesOfThreeMemberClustersAreLinearizable(t *testing.T) {
	w := newWorld(t, kubetest.Start(t), kubetest.Start(t, kubetest.Dedicated()), kubetest.Start(t, kubetest.Dedicated()))
	result := w.play()
	require.Equal(t, porcupine.Ok, result)
	require.Zero(t, w.outOfOrder(), "effects out of token order")
	w.requireProgress()
}

// requireProgress fails on a history in which nothing interesting happened.
func (w *world) requireProgress() {
	for _, k := range []string{string(acquire), string(confirm), string(release), string(force), string(effect), "paused", "acquire: LockBusy", "confirm: lost"} {
		require.NotZero(w.t, w.counts[k], "no %s in the history", k)
	}
}

func TestALockWithoutFencingFailsTheSameCheck(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	w.unfenced, w.pause = true, 4
	result, drawing := w.playUntilIllegal(6 * time.Second)
	require.Equal(t, porcupine.Illegal, result)
	w.requireDrawn(drawing)
}

func TestALockOnWallClocksFailsTheSameCheck(t *testing.T) {
	w := newWorld(t, kubetest.Start(t))
	w.wall = true
	result, drawing := w.playUntilIllegal(5 * time.Second)
	require.Equal(t, porcupine.Illegal, result)
	w.requireDrawn(drawing)
}

func (w *world) requireDrawn(path string) {
	s, err := os.Stat(path)
	require.NoError(w.t, err)
	require.NotZero(w.t, s.Size())
	require.NoError(w.t, os.Remove(path))
}
