// Package run is the step that runs a whole operation in one process, for a
// plain Job on a cluster without Argo.
//
// It guarantees the same order, the same rules and the same record as the
// workflow: it runs the same steps. It releases the lock however it ends,
// unless it is killed; then the next run takes over.
package run

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/steps/acquirelock"
	"github.com/rollcall-dev/rollcall/steps/loadkeys"
	"github.com/rollcall-dev/rollcall/steps/plan"
	"github.com/rollcall-dev/rollcall/steps/releaselock"
	"github.com/rollcall-dev/rollcall/steps/savestate"
	"github.com/rollcall-dev/rollcall/steps/scale"
	"github.com/rollcall-dev/rollcall/steps/stake"
	"github.com/rollcall-dev/rollcall/steps/unstake"
	"github.com/rollcall-dev/rollcall/steps/verifyconsensus"
	"github.com/rollcall-dev/rollcall/steps/waitready"
)

// Chains are the steps of each operation, in order. Up: a node is synced before
// it is staked. Down: a validator leaves consensus before its pod goes.
var Chains = map[step.Operation][]step.Step{
	step.ScaleUp: {acquirelock.Step, loadkeys.Step, plan.Step, scale.Step, waitready.Step,
		stake.Step, verifyconsensus.Step, savestate.Step, releaselock.Step},
	step.ScaleDown: {acquirelock.Step, loadkeys.Step, plan.Step, unstake.Step, verifyconsensus.Step,
		scale.Step, waitready.Step, savestate.Step, releaselock.Step},
}

// Config of the step: the steps of the chain read their own variables too.
type Config struct{ step.Common }

// Step is run.
var Step = step.Define("run", "run all the steps of an operation in one process",
	func(c *Config) *step.Common { return &c.Common }, Run)

// releaseTimeout bounds the release after a failure or a signal.
const releaseTimeout = 20 * time.Second

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	return inOrder(ctx, Chains[c.Operation], step.NewLogger(os.Stderr))
}

func inOrder(ctx context.Context, steps []step.Step, log *slog.Logger) (total step.Result, err error) {
	total.Outputs = map[string]string{}
	for i, s := range steps {
		res, err := s.Run(ctx, log)
		if err != nil {
			err = fault.New(fault.CodeOf(err), "%s: %w", s.Name(), err)
			if i > 0 && !fault.Is(err, fault.LockLost) {
				err = errors.Join(err, release(ctx, log))
			}
			return total, err
		}
		log.Info(res.Message, "step", s.Name(), "done", i+1, "of", len(steps))
		maps.Copy(total.Outputs, res.Outputs)
		if s.Name() != "release-lock" {
			total.Message = res.Message
		}
	}
	return total, nil
}

// release ends a chain that failed, also when ctx has ended.
func release(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := releaselock.Step.Run(ctx, log)
	return err
}
