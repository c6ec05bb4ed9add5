// Package census gathers the facts about a network at one height: who runs,
// who is in the consensus set, who really signs, what the stake records say.
//
// It guarantees that consensus facts come from one height of one chain, read
// from the most advanced reachable node and cross-checked with a second one
// where there is one. It doesn't guarantee that they still hold afterwards:
// whoever acts on them holds the lock and takes a new census after each change.
package census

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/quorum"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/workload"
)

const (
	// Window is the number of latest canonical commits that tell who is alive.
	Window = 10
	// nodeTimeout bounds the question to one node.
	nodeTimeout = 6 * time.Second
	// parallel bounds the requests in flight.
	parallel = 16
	// maxLag is how many blocks a node may be behind the head and count as synced.
	maxLag = 2
)

// Validator is one validator of this deployment.
type Validator struct {
	Ordinal  int
	Identity chain.Identity
	Pod      *corev1.Pod   // nil when there is none
	Node     *chain.Node   // nil when its RPC didn't answer
	NodeErr  error         // why Node is nil
	Member   *chain.Member // nil when its key isn't in the consensus set
	Record   chain.Record
	Signed   int // of Census.Commits
}

// Power in the consensus set; 0 when it isn't in it.
func (v Validator) Power() int64 {
	if v.Member == nil {
		return 0
	}
	return v.Member.Power
}

// Census is what was found.
type Census struct {
	StatefulSet *appsv1.StatefulSet
	Height      int64 // the highest block seen
	BlockTime   time.Time
	Interval    time.Duration  // average time between the last blocks
	Set         chain.Set      // at the head of the witness
	Commits     []chain.Commit // the last canonical ones, oldest first
	Power       quorum.Power
	Validators  []Validator // by ordinal
	// Others are the addresses of members that aren't this deployment's.
	Others []chain.Member
}

// Replicas of the StatefulSet.
func (c *Census) Replicas() int { return workload.Replicas(c.StatefulSet) }

// Get returns the validator with the ordinal, or nil.
func (c *Census) Get(ordinal int) *Validator {
	for i := range c.Validators {
		if c.Validators[i].Ordinal == ordinal {
			return &c.Validators[i]
		}
	}
	return nil
}

// Taker takes censuses of one network.
type Taker struct {
	Clients  *kube.Clients
	Network  *v1alpha1.ValidatorNetwork
	Workload *workload.Workload
	Adapter  chain.Adapter
}

// Endpoint returns the RPC of a validator.
func Endpoint(n *v1alpha1.ValidatorNetwork, ordinal int) chain.Endpoint {
	return chain.Endpoint(workload.Expand(n.Spec.Chain.RPC, n.Spec.Workload.StatefulSet, n.Namespace, ordinal))
}

// SecretName returns the name of a validator's Secret.
func SecretName(n *v1alpha1.ValidatorNetwork, ordinal int) string {
	return workload.Expand(n.Spec.Keys.Secret, n.Spec.Workload.StatefulSet, n.Namespace, ordinal)
}

// Keys reads the key material of the ordinals, all problems in one error.
func (t *Taker) Keys(ctx context.Context, ordinals []int) (map[int]keys.Validator, error) {
	var mu sync.Mutex
	out, errs := map[int]keys.Validator{}, map[int]error{}
	each(ordinals, func(o int) {
		k, err := t.key(ctx, o)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs[o] = err
			return
		}
		out[o] = k
	})
	if len(errs) > 0 {
		var all []error
		for _, o := range slices.Sorted(maps.Keys(errs)) {
			all = append(all, errs[o])
		}
		return nil, errors.Join(all...)
	}
	return out, nil
}

func (t *Taker) key(ctx context.Context, ordinal int) (keys.Validator, error) {
	name, ns := SecretName(t.Network, ordinal), t.Clients.Namespace
	s, err := t.Clients.Kube.CoreV1().Secrets(ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return keys.Validator{}, fault.New(fault.Config, "load keys of validator %d: Secret %s/%s doesn't exist", ordinal, ns, name).
			Do("create it with the entries %s and %s", t.Network.Spec.Keys.ConsensusEntry, t.Network.Spec.Keys.OperatorEntry)
	}
	if err != nil {
		return keys.Validator{}, kube.Explain(err, "get", "secrets", ns, name)
	}
	return keys.Load(s.Data, "Secret "+ns+"/"+name, ordinal, t.Network.Spec.Keys.ConsensusEntry, t.Network.Spec.Keys.OperatorEntry)
}

// identities returns the public identities of the ordinals: from the roster
// where it has them, so that a step that only looks needs no right to Secrets.
func (t *Taker) identities(ctx context.Context, ordinals []int) (map[int]chain.Identity, error) {
	ids := map[int]chain.Identity{}
	for _, r := range t.Network.Status.Roster {
		if r.Address != "" && r.Operator != "" {
			ids[int(r.Ordinal)] = chain.Identity{Operator: r.Operator, Address: r.Address}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(ordinals), func(o int) bool { _, ok := ids[o]; return ok })
	ks, err := t.Keys(ctx, missing)
	if err != nil {
		return nil, err
	}
	for o, k := range ks {
		id, err := t.Adapter.Identity(k)
		if err != nil {
			return nil, err
		}
		ids[o] = id
	}
	return ids, nil
}

// Nodes asks the nodes of the ordinals about themselves.
func (t *Taker) Nodes(ctx context.Context, ordinals []int) (map[int]chain.Node, map[int]error) {
	var mu sync.Mutex
	nodes, errs := map[int]chain.Node{}, map[int]error{}
	each(ordinals, func(o int) {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
		defer cancel()
		n, err := t.Adapter.Node(ctx, Endpoint(t.Network, o))
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs[o] = err
			return
		}
		nodes[o] = n
	})
	return nodes, errs
}

// each calls f for every item, at most parallel at a time, and waits.
func each[T any](items []T, f func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, i := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// Options of a census.
type Options struct {
	// Wanted: ordinals below it are counted too, besides those that run and those
	// of the roster.
	Wanted int
	// Subjects are ordinals whose own nodes should not testify about consensus.
	Subjects []int
}

// Take takes a census.
func (t *Taker) Take(ctx context.Context, o Options) (*Census, error) {
	s, err := t.Workload.Get(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := t.Workload.Pods(ctx, s)
	if err != nil {
		return nil, err
	}
	known := map[int]bool{}
	for o := range pods {
		known[o] = true
	}
	for o := range max(o.Wanted, workload.Replicas(s)) {
		known[o] = true
	}
	for _, r := range t.Network.Status.Roster {
		known[int(r.Ordinal)] = true
	}
	ordinals := slices.Sorted(maps.Keys(known))
	ids, err := t.identities(ctx, ordinals)
	if err != nil {
		return nil, err
	}
	nodes, nodeErrs := t.Nodes(ctx, slices.Sorted(maps.Keys(pods)))
	for _, o := range slices.Sorted(maps.Keys(nodeErrs)) {
		if fault.Is(nodeErrs[o], fault.Config) {
			return nil, nodeErrs[o]
		}
	}
	if len(nodes) == 0 {
		return nil, unreachable(nodeErrs)
	}
	c := &Census{StatefulSet: s}
	for _, o := range ordinals {
		v := Validator{Ordinal: o, Identity: ids[o], Pod: pods[o], NodeErr: nodeErrs[o]}
		if n, ok := nodes[o]; ok {
			v.Node = &n
		}
		c.Validators = append(c.Validators, v)
	}
	if err := t.consensus(ctx, c, o.Subjects); err != nil {
		return nil, err
	}
	return c, t.records(ctx, c)
}

func unreachable(errs map[int]error) error {
	if len(errs) == 0 {
		return fault.New(fault.Transient, "no validator's pod runs, so there is nobody to ask").Do("check the StatefulSet")
	}
	// Garbage from every one of them: not the nodes' trouble, and no retry helps.
	code := fault.Chain
	for _, err := range errs {
		if !fault.Is(err, fault.Chain) {
			code = fault.Transient
		}
	}
	var lines []string
	for _, o := range slices.Sorted(maps.Keys(errs)) {
		lines = append(lines, fmt.Sprintf("validator %d: %v", o, errs[o]))
		if len(lines) == 3 && len(errs) > 3 {
			lines = append(lines, fmt.Sprintf("and %d more", len(errs)-3))
			break
		}
	}
	return fault.New(code, "no validator's RPC answered: %s", strings.Join(lines, "; ")).
		Do("check the pods and spec.chain.rpc of the ValidatorNetwork")
}

// consensus reads the set and the last commits from the most advanced node, and
// has a second node confirm them.
func (t *Taker) consensus(ctx context.Context, c *Census, subjects []int) error {
	for _, v := range c.Validators {
		if v.Node != nil && v.Node.Height > c.Height {
			c.Height, c.BlockTime = v.Node.Height, v.Node.BlockTime
		}
	}
	if c.Height == 0 {
		return fault.New(fault.Transient, "the chain has no block yet")
	}
	witnesses := c.Observers(subjects...)
	if len(witnesses) == 0 {
		witnesses = c.Observers()
	}
	if len(witnesses) == 0 {
		return fault.New(fault.Transient, "no validator's node has caught up with the chain at height %d", c.Height)
	}
	head := c.Get(witnesses[0])
	at := head.Node.Height
	to := at - 1 // the commit of the head is still the node's own view
	from := max(1, to-Window+1)
	var err error
	if c.Set, err = t.Adapter.Set(ctx, Endpoint(t.Network, head.Ordinal), at); err != nil {
		return err
	}
	if to >= from {
		if c.Commits, err = t.Adapter.Commits(ctx, Endpoint(t.Network, head.Ordinal), from, to); err != nil {
			return err
		}
	}
	if len(witnesses) > 1 && len(c.Commits) > 0 {
		if err := t.confirm(ctx, c, c.Get(witnesses[1])); err != nil {
			return err
		}
	}
	if n := len(c.Commits); n > 1 {
		c.Interval = c.Commits[n-1].Time.Sub(c.Commits[0].Time) / time.Duration(n-1)
	}
	c.Power = quorum.Power{Total: c.Set.Power()}
	own := map[string]bool{}
	for i := range c.Validators {
		v := &c.Validators[i]
		own[v.Identity.Address] = true
		if m, ok := c.Set.Find(v.Identity.Address); ok {
			v.Member = &m
		}
		for _, k := range c.Commits {
			if k.Signed(v.Identity.Address) {
				v.Signed++
			}
		}
	}
	for _, m := range c.Set.Members {
		if c.Alive(m.Address) {
			c.Power.Live += m.Power
		}
		if !own[m.Address] {
			c.Others = append(c.Others, m)
		}
	}
	return nil
}

// confirm checks that a second node tells the same about the newest canonical
// commit that both have.
func (t *Taker) confirm(ctx context.Context, c *Census, second *Validator) error {
	h := min(c.Commits[len(c.Commits)-1].Height, second.Node.Height-1)
	i := slices.IndexFunc(c.Commits, func(k chain.Commit) bool { return k.Height == h })
	if i < 0 {
		return nil // too far behind to testify; Synced allows 2 blocks
	}
	got, err := t.Adapter.Commits(ctx, Endpoint(t.Network, second.Ordinal), h, h)
	if err != nil {
		return err
	}
	if len(got) != 1 || !maps.Equal(got[0].Votes, c.Commits[i].Votes) {
		return fault.New(fault.Refused, "validators' nodes disagree about who signed block %d (validator %d against another)", h, second.Ordinal).
			Do("look for a fork: compare the app hashes of the nodes")
	}
	return nil
}

// streak is the number of latest consecutive signatures that prove a validator
// alive, whatever was before: a newcomer is often too late for its first blocks.
const streak = 3

// Alive reports whether a member really signs: it signed the last commits
// without a gap, or at least 90 % of those in the window whose set it was in
// and not neither of the last two.
func (c *Census) Alive(address string) bool {
	var in, signed, run int
	for _, k := range c.Commits {
		if _, ok := k.Votes[address]; !ok {
			run = 0
			continue
		}
		in++
		if run++; !k.Signed(address) {
			run = 0
			continue
		}
		signed++
	}
	if run >= streak {
		return true
	}
	if n := len(c.Commits); n >= 2 && !c.Commits[n-1].Signed(address) && !c.Commits[n-2].Signed(address) {
		return false
	}
	return in > 0 && signed >= in-in/10
}

// Joined reports whether a key became a member within the last commits.
func (c *Census) Joined(address string) bool {
	if len(c.Commits) == 0 {
		return false
	}
	_, before := c.Commits[0].Votes[address]
	_, now := c.Set.Find(address)
	return now && !before
}

// Streak returns how many of the latest commits in a row a validator signed.
func (c *Census) Streak(address string) (n int) {
	for i := len(c.Commits) - 1; i >= 0 && c.Commits[i].Signed(address); i-- {
		n++
	}
	return n
}

// Out returns for how many of the latest commits in a row a key was not a
// member of the set that had to sign them.
func (c *Census) Out(address string) (n int) {
	for i := len(c.Commits) - 1; i >= 0; i-- {
		if _, ok := c.Commits[i].Votes[address]; ok {
			break
		}
		n++
	}
	return n
}

func (t *Taker) records(ctx context.Context, c *Census) error {
	var mu sync.Mutex
	var errs []error
	each(slices.Collect(indices(c.Validators)), func(i int) {
		r, err := t.Adapter.Record(ctx, c.Validators[i].Identity)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("read stake record of validator %d: %w", c.Validators[i].Ordinal, err))
		}
		c.Validators[i].Record = r
	})
	return errors.Join(errs...)
}

func indices[T any](s []T) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range s {
			if !yield(i) {
				return
			}
		}
	}
}

// Synced reports whether a validator's node has caught up with the chain, and
// if not, why. catching_up alone is no proof: heights are compared.
func (c *Census) Synced(v *Validator) (bool, string) {
	switch {
	case v == nil || v.Pod == nil:
		return false, "has no pod"
	case v.Node == nil:
		return false, fmt.Sprintf("RPC doesn't answer: %v", v.NodeErr)
	case v.Node.Address != v.Identity.Address:
		return false, fmt.Sprintf("runs with consensus key %s, but its Secret holds %s", v.Node.Address, v.Identity.Address)
	case v.Node.Height == 0:
		return false, "has no block yet"
	case v.Node.CatchingUp:
		return false, fmt.Sprintf("is catching up, at height %d of %d", v.Node.Height, c.Height)
	case v.Node.Peers == 0:
		return false, "has no peers"
	case c.Height-v.Node.Height > maxLag:
		return false, fmt.Sprintf("is %d blocks behind, at height %d of %d", c.Height-v.Node.Height, v.Node.Height, c.Height)
	}
	return true, ""
}

// Observers returns the ordinals of synced nodes other than the subjects, the
// most advanced first.
func (c *Census) Observers(subjects ...int) []int {
	var vs []*Validator
	for i := range c.Validators {
		v := &c.Validators[i]
		if ok, _ := c.Synced(v); ok && !slices.Contains(subjects, v.Ordinal) {
			vs = append(vs, v)
		}
	}
	slices.SortStableFunc(vs, func(a, b *Validator) int { return cmp.Compare(b.Node.Height, a.Node.Height) })
	var out []int
	for _, v := range vs {
		out = append(out, v.Ordinal)
	}
	return out
}
