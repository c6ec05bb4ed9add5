//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func sortPods(pods []corev1.Pod) {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// logKeeper follows the logs of the validators' pods: a pod that scale-down
// takes away takes its log with it. Other pods' logs can still be read at the
// end. It also notes when each pod was asked to go.
type logKeeper struct {
	mu      sync.Mutex
	logs    map[string]*bytes.Buffer // by pod, its UID and container
	stopped map[string]time.Time     // by pod name: the last deletion request
}

func keepLogs(t *testing.T, d *demo) *logKeeper {
	t.Helper()
	k := &logKeeper{logs: map[string]*bytes.Buffer{}, stopped: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			l, err := d.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=validator"})
			if err == nil {
				for _, p := range l.Items {
					k.see(ctx, d, &wg, p)
				}
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return k
}

func (k *logKeeper) see(ctx context.Context, d *demo, wg *sync.WaitGroup, p corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := p.DeletionTimestamp; at != nil {
		// The API adds the grace period to the moment of the request.
		var grace int64
		if p.DeletionGracePeriodSeconds != nil {
			grace = *p.DeletionGracePeriodSeconds
		}
		k.stopped[p.Name] = at.Add(-time.Duration(grace) * time.Second)
	}
	for _, c := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
		id := p.Name + " " + string(p.UID) + " " + c.Name
		if k.logs[id] != nil || c.State.Waiting != nil {
			continue
		}
		buffer := &bytes.Buffer{}
		k.logs[id] = buffer
		wg.Go(func() {
			r, err := d.kube.CoreV1().Pods(namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name, Follow: true}).Stream(ctx)
			if err != nil {
				return // gone already; the self-check of the search counts what was kept
			}
			defer r.Close()
			_, _ = io.Copy(writer{k, buffer}, r)
		})
	}
}

type writer struct {
	k *logKeeper
	b *bytes.Buffer
}

func (w writer) Write(p []byte) (int, error) {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	return w.b.Write(p)
}

// all returns what was kept so far.
func (k *logKeeper) all() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]string{}
	for id, b := range k.logs {
		out[id] = b.String()
	}
	return out
}

// stoppedAt is when a pod was last asked to go.
func (k *logKeeper) stoppedAt(t *testing.T, pod string) time.Time {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.stopped[pod]
	require.True(t, ok, "pod %s was never seen to be stopped", pod)
	return at
}
