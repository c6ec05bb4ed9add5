// Package forceunlock is the step that breaks the lock of a run that can't go on.
//
// It guarantees that only the holding with the given id is ended, that the old
// holder is fenced (its next effect is refused), and that who did it and why is
// kept in the lock and in an Event. It doesn't find out whether the old run is
// really stuck: that is for the person who gives the reason. A run that is gone
// needs no force: its lock is taken over by the next one.
package forceunlock

import (
	"context"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// Config of the step.
type Config struct {
	step.Common
	LockID string `split_words:"true" required:"true" desc:"id of the holding to end, as every refusal prints it, for example demo-7"`
}

// Step is force-unlock.
var Step = step.Define("force-unlock", "break the lock of a run that can't go on",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.Reason == "" {
		return step.Result{}, fault.New(fault.Config, "bad configuration: %s_REASON: is required: why the lock is broken", step.Prefix)
	}
	if c.DryRun {
		return step.Result{Message: "dry run: the lock stays as it is"}, nil
	}
	if d.Common.RunUID == "" { // a person's, outside of any run
		d.Common.RunUID = string(uuid.NewUUID())
	}
	n, err := d.Store.Get(ctx)
	if err != nil {
		return step.Result{}, err
	}
	l, err := d.Lock(n)
	if err != nil {
		return step.Result{}, err
	}
	if err := l.ForceUnlock(ctx, c.LockID, c.Reason); err != nil {
		return step.Result{}, err
	}
	return step.Result{Message: "lock " + c.LockID + " is broken; its run is fenced"}, nil
}
