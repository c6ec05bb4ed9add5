package step

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/chain"
	"github.com/rollcall-dev/rollcall/internal/chain/adapters"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/kube"
	"github.com/rollcall-dev/rollcall/internal/lock"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/workload"
)

// Deps is what a step works with.
type Deps struct {
	Step    string
	Common  Common
	Log     *slog.Logger
	Clients *kube.Clients
	Store   *network.Store
	Now     func() time.Time

	held *lock.Held // nil before the lock is held
}

// NewDeps connects to the cluster and finds the network.
func NewDeps(ctx context.Context, name string, c *Common, log *slog.Logger) (*Deps, error) {
	config, ns, err := kube.Config(c.Namespace)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, name, c, config, ns, log)
}

// Connect is NewDeps for a configuration of the caller's.
func Connect(ctx context.Context, name string, c *Common, config *rest.Config, ns string, log *slog.Logger) (*Deps, error) {
	config.UserAgent = "rollcall/" + name
	clients, err := kube.New(config, ns)
	if err != nil {
		return nil, err
	}
	store, err := network.Find(ctx, clients, c.Network)
	if err != nil {
		return nil, err
	}
	log = log.With("network", ns+"/"+store.Name())
	if c.RunName != "" {
		log = log.With("run", c.RunName)
	}
	return &Deps{Step: name, Common: *c, Log: log, Clients: clients, Store: store, Now: time.Now}, nil
}

// Run returns the reference to the run's object.
func (d *Deps) Run() v1alpha1.RunReference {
	c := d.Common
	api := c.RunAPIVersion
	if api == "" {
		api = map[string]string{"Workflow": "argoproj.io/v1alpha1", "Job": "batch/v1", "Pod": "v1"}[c.RunKind]
	}
	return v1alpha1.RunReference{APIVersion: api, Kind: c.RunKind, Name: c.RunName, UID: c.RunUID, Cluster: c.Cluster}
}

// Operation describes the run for the network's record.
func (d *Deps) Operation(wanted int32, token int64) v1alpha1.Operation {
	return v1alpha1.Operation{
		Type: string(d.Common.Operation), Validators: wanted, Step: d.Step, Run: d.Run(), User: d.user(), Token: token,
	}
}

func (d *Deps) user() string {
	if d.Common.User != "" {
		return d.Common.User
	}
	if d.Common.Pod != "" {
		return "unknown" // the user of a container says nothing about people
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

func (d *Deps) host() string {
	if d.Common.Host != "" {
		return d.Common.Host
	}
	h, _ := os.Hostname()
	return h
}

// Lock returns the network's lock, seen as this run.
func (d *Deps) Lock(n *v1alpha1.ValidatorNetwork) (*lock.Lock, error) {
	if d.Common.RunUID == "" {
		return nil, fault.New(fault.Config, "bad configuration: %s_RUN_UID: is required to work under the lock: UID of the Workflow, Job or Pod", Prefix)
	}
	name := n.Spec.Lock.Name
	if name == "" {
		name = n.Name
	}
	o := lock.Options{
		Name: name,
		TTL:  time.Duration(n.Spec.Lock.TTLSeconds) * time.Second,
		Holder: v1alpha1.Holder{
			Run: d.Run(), User: d.user(), Host: d.host(), Pod: d.Common.Pod,
			Operation: string(d.Common.Operation), Step: d.Step, Reason: d.Common.Reason,
		},
		Floor:  d.Store.Token,
		Logger: d.Log,
	}
	if n.Spec.Clusters == nil {
		o.Clients = d.Clients
		return lock.New(o)
	}
	var err error
	if o.Members, err = kube.Contexts(d.Common.ClustersKubeconfig, d.Clients.Namespace); err != nil {
		return nil, err
	}
	o.Names, o.Generation = n.Spec.Clusters.Names, n.Spec.Clusters.Generation
	return lock.New(o)
}

// Session is a step's hold on the network: the lock, the facts' sources, and a
// context that ends when the lock is lost.
type Session struct {
	*Deps
	Network *v1alpha1.ValidatorNetwork
	Adapter chain.Adapter
	Taker   *census.Taker
	Held    *lock.Held // nil for a step that only looks
}

// Look opens a session for a step that changes nothing.
func (d *Deps) Look(ctx context.Context) (*Session, error) {
	n, err := d.Store.Get(ctx)
	if err != nil {
		return nil, err
	}
	return d.session(n)
}

func (d *Deps) session(n *v1alpha1.ValidatorNetwork) (*Session, error) {
	// A handful of endpoints is enough for failover; the facts name their own.
	var es []chain.Endpoint
	for o := range min(n.Spec.Validators, 8) {
		es = append(es, census.Endpoint(n, int(o)))
	}
	a, err := adapters.New(n.Spec.Chain, es)
	if err != nil {
		return nil, err
	}
	return &Session{Deps: d, Network: n, Adapter: a, Taker: &census.Taker{
		Clients: d.Clients, Network: n, Workload: workload.New(d.Clients, n), Adapter: a,
	}}, nil
}

// hold opens a session under the run's lock, which an earlier step acquired.
// The returned context is cancelled with the cause when the lock is lost. done
// must be called with the step's error and returns the error to end with.
func (d *Deps) hold(ctx context.Context) (_ context.Context, _ *Session, done func(error) error, err error) {
	n, err := d.Store.Get(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	l, err := d.Lock(n)
	if err != nil {
		return nil, nil, nil, err
	}
	held, err := l.Attach(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	d.held = held
	d.Log = d.Log.With("token", held.Token())
	if n, err = d.Store.UpdateStatus(ctx, held.Token(), func(n *v1alpha1.ValidatorNetwork) bool {
		return network.Reach(n, d.Common.RunUID, d.Step)
	}); err != nil {
		return nil, nil, nil, err
	}
	s, err := d.session(n)
	if err != nil {
		return nil, nil, nil, err
	}
	s.Held = held
	ctx, stop := held.Keep(ctx)
	return ctx, s, func(err error) error {
		// Why the context ended says more than that it ended.
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
		stop()
		return err
	}, nil
}

// Work does a step's work under the run's lock, or, when look is true, without
// it and so without changing anything (Session.Held is nil then).
func (d *Deps) Work(ctx context.Context, look bool, work func(context.Context, *Session) (Result, error)) (Result, error) {
	if look {
		s, err := d.Look(ctx)
		if err != nil {
			return Result{}, err
		}
		return work(ctx, s)
	}
	ctx, s, done, err := d.hold(ctx)
	if err != nil {
		return Result{}, err
	}
	res, err := work(ctx, s)
	return res, done(err)
}

// Origin marks this run's transactions for a validator. Each hash is in the log
// before its transaction is sent.
func (s *Session) Origin(ordinal int) chain.Origin {
	return chain.Origin{Token: s.Held.Token(), Run: s.Common.RunUID, Check: s.Held.Check, Sending: func(hash string) {
		s.Log.Info("sending a transaction", "validator", ordinal, "tx", hash)
	}}
}

// Wanted returns the wanted number of validators: the run's parameter or, when
// that is not given, the network's recorded wish. It is checked against the
// network's limits.
func (d *Deps) Wanted(n *v1alpha1.ValidatorNetwork) (int, error) {
	w := int32(d.Common.Wanted)
	if w == 0 {
		w = n.Spec.Validators
	}
	switch s := n.Spec.Safety; {
	case w > s.MaxValidators:
		return 0, fault.New(fault.Config, "%d validators are above the limit of %d", w, s.MaxValidators).
			Do("ask for fewer, or raise spec.safety.maxValidators of ValidatorNetwork %s/%s", n.Namespace, n.Name)
	case w < s.MinValidators:
		return 0, fault.New(fault.Config, "%d validators are below the safety minimum of %d", w, s.MinValidators).
			Do("ask for at least %d, or lower spec.safety.minValidators of ValidatorNetwork %s/%s", s.MinValidators, n.Namespace, n.Name)
	}
	return int(w), nil
}

// Event records an event; a failure to record it is only logged.
func (s *Session) Event(ctx context.Context, t network.EventType, reason, note string) {
	if err := s.Store.Event(ctx, s.Network, t, reason, s.Step, note); err != nil {
		s.Log.Warn("event not recorded", "error", err)
	}
}

// noteTimeout bounds the recording of a failure after the step's context ended.
const noteTimeout = 8 * time.Second

// noteFailure records in the network that this run's step failed, if the run
// still holds the lock; whoever took over writes its own story. ctx is the
// process' own: when that has ended, a signal stopped the run, and the lock is
// given back.
func (d *Deps) noteFailure(ctx context.Context, err error) {
	code := fault.CodeOf(err)
	if d.held == nil || code == fault.LockLost {
		return
	}
	stopped := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	line := Line(err)
	n, uerr := d.Store.UpdateStatus(ctx, d.held.Token(), func(n *v1alpha1.ValidatorNetwork) bool {
		return network.Fail(n, d.Common.RunUID, d.Step, code.String(), line, d.Now())
	})
	if uerr == nil {
		uerr = d.Store.Event(ctx, n, network.Warning, code.String(), d.Step, line)
	}
	if uerr != nil {
		d.Log.Warn("failure not recorded", "error", uerr)
	}
	// Stopped by a signal, this run may have no exit handler: whoever waits need
	// not wait for Argo or the TTL to tell that it is over.
	if stopped {
		if rerr := d.held.Release(ctx); rerr != nil {
			d.Log.Warn("lock not released", "error", rerr)
		}
	}
}
