// Package waitready is the step that waits until the pods are as wanted: new
// ones ready and their nodes caught up with the chain, removed ones gone.
//
// It guarantees, when it succeeds, that every validator below the wanted number
// has a ready pod whose node runs with the validator's own key, on the right
// chain, with peers, within two blocks of the head; and that no pod from the
// wanted number up exists. A pod that can't start (an image that is missing, a
// volume that can't be bound) is named. If such a pod was new and never staked,
// it is taken away again, so that nothing is left half-done.
package waitready

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/internal/workload"
)

// Config of the step.
type Config struct {
	step.Common
	ReadyTimeout time.Duration `split_words:"true" default:"10m" desc:"how long pods may take to become ready and synced, or to go"`
	ReadyPoll    time.Duration `split_words:"true" default:"500ms" desc:"how often pods and nodes are looked at"`
	TroubleAfter time.Duration `split_words:"true" default:"45s" desc:"how long a new pod may be in trouble (image missing, unschedulable) before the step gives up"`
}

// Step is wait-ready.
var Step = step.Define("wait-ready", "wait until new validators have caught up and removed ones are gone",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing to wait for"}, nil
	}
	return d.Work(ctx, false, func(ctx context.Context, s *step.Session) (step.Result, error) { return work(ctx, s, c) })
}

func work(ctx context.Context, s *step.Session, c Config) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	trouble := map[int]time.Time{}
	var stuck *stuckError
	err = s.Wait(ctx, "validators ready", c.ReadyTimeout, c.ReadyPoll, func(ctx context.Context) (bool, string, error) {
		pods, err := listPods(ctx, s)
		if err != nil {
			return false, "", err
		}
		if waiting := podsMissing(s, pods, wanted); waiting != "" {
			stuck = inTrouble(pods, wanted, trouble, c.TroubleAfter)
			return stuck != nil, waiting, nil // its code, TimedOut, would be waited out
		}
		return nodesSynced(ctx, s, wanted)
	})
	if err != nil {
		return step.Result{}, err
	}
	if stuck != nil {
		return step.Result{}, errors.Join(stuck, rollBack(ctx, s, stuck.ordinal))
	}
	return step.Result{Message: fmt.Sprintf("%d validators are ready and synced", wanted)}, nil
}

func listPods(ctx context.Context, s *step.Session) (map[int]*corev1.Pod, error) {
	set, err := s.Taker.Workload.Get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Taker.Workload.Pods(ctx, set)
}

// podsMissing says which pods aren't as wanted yet; empty when all are.
func podsMissing(s *step.Session, pods map[int]*corev1.Pod, wanted int) string {
	var missing []string
	for o := range wanted {
		switch p := pods[o]; {
		case p == nil:
			missing = append(missing, fmt.Sprintf("pod %s to be created", s.Taker.Workload.Pod(o)))
		case !workload.Ready(p):
			what := fmt.Sprintf("pod %s to be ready", p.Name)
			if t := workload.Trouble(p); t != "" {
				what = t
			}
			missing = append(missing, what)
		}
	}
	for o, p := range pods {
		if o >= wanted {
			missing = append(missing, fmt.Sprintf("pod %s to go", p.Name))
		}
	}
	slices.Sort(missing)
	return strings.Join(missing, "; ")
}

// stuckError is a new pod that gets nowhere by itself.
type stuckError struct {
	ordinal int
	err     error
}

func (e *stuckError) Error() string { return e.err.Error() }
func (e *stuckError) Unwrap() error { return e.err }

// inTrouble returns a stuckError once a pod has been in trouble for long.
func inTrouble(pods map[int]*corev1.Pod, wanted int, since map[int]time.Time, limit time.Duration) *stuckError {
	for o := range wanted {
		t := workload.Trouble(pods[o])
		if t == "" {
			delete(since, o)
			continue
		}
		if since[o].IsZero() {
			since[o] = time.Now()
		}
		if time.Since(since[o]) > limit {
			return &stuckError{o, fault.New(fault.TimedOut, "validator %d doesn't start: %s", o, t).
				Do("mend it (kubectl describe pod) and run again")}
		}
	}
	return nil
}

// nodesSynced asks the nodes themselves.
func nodesSynced(ctx context.Context, s *step.Session, wanted int) (bool, string, error) {
	ordinals := make([]int, wanted)
	for o := range ordinals {
		ordinals[o] = o
	}
	nodes, errs := s.Taker.Nodes(ctx, ordinals)
	c := &census.Census{}
	for _, n := range nodes {
		c.Height = max(c.Height, n.Height)
	}
	var waiting []string
	for _, o := range ordinals {
		if err := errs[o]; err != nil && fault.Is(err, fault.Config) {
			return false, "", err
		}
		v := census.Validator{Ordinal: o, Pod: &corev1.Pod{}, NodeErr: errs[o], Identity: chain.Identity{Address: address(s, o)}}
		if n, ok := nodes[o]; ok {
			v.Node = &n
		}
		if v.Node != nil && v.Node.Address != v.Identity.Address {
			return false, "", fault.New(fault.Refused, "validator %d runs with consensus key %s, but its Secret holds %s", o, v.Node.Address, v.Identity.Address).
				Do("find out where that key comes from before you go on")
		}
		if ok, why := c.Synced(&v); !ok {
			waiting = append(waiting, fmt.Sprintf("validator %d %s", o, why))
		}
	}
	return len(waiting) == 0, strings.Join(waiting, "; "), nil
}

func address(s *step.Session, ordinal int) string {
	if e := network.Entry(s.Network, ordinal); e != nil {
		return e.Address
	}
	return ""
}

// rollBack takes away the stuck new pod and those above it, if none of them
// ever had a stake, and takes the wish back with them.
func rollBack(ctx context.Context, s *step.Session, ordinal int) error {
	if s.Common.Operation != step.ScaleUp {
		return nil
	}
	c, err := s.Taker.Take(ctx, census.Options{})
	if err != nil {
		return err
	}
	for _, v := range c.Validators {
		if v.Ordinal >= ordinal && (v.Member != nil || v.Record.Status != chain.Unstaked || workload.Ready(v.Pod)) {
			return nil // part of the network: leave it to its operator
		}
	}
	if ordinal < int(s.Network.Spec.Safety.MinValidators) {
		return nil
	}
	changed, err := s.Taker.Workload.Scale(ctx, ordinal, s.Held.Token(), s.Held.Check)
	if err != nil || !changed {
		return err
	}
	if _, err := s.Store.SetWanted(ctx, s.Held.Token(), int32(ordinal)); err != nil {
		return err
	}
	msg := fmt.Sprintf("scaled back to %d: the new pods never started, and nothing was staked for them", ordinal)
	s.Log.Warn(msg)
	s.Event(ctx, network.Warning, "RolledBack", msg)
	return nil
}
