// Package steps lists every step, for the binary that holds them all.
package steps

import (
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/steps/acquirelock"
	"github.com/rollcall-dev/rollcall/steps/forceunlock"
	"github.com/rollcall-dev/rollcall/steps/loadkeys"
	"github.com/rollcall-dev/rollcall/steps/plan"
	"github.com/rollcall-dev/rollcall/steps/releaselock"
	"github.com/rollcall-dev/rollcall/steps/run"
	"github.com/rollcall-dev/rollcall/steps/savestate"
	"github.com/rollcall-dev/rollcall/steps/scale"
	"github.com/rollcall-dev/rollcall/steps/stake"
	"github.com/rollcall-dev/rollcall/steps/unstake"
	"github.com/rollcall-dev/rollcall/steps/verifyconsensus"
	"github.com/rollcall-dev/rollcall/steps/waitready"
)

// All steps, in the order help shows them.
var All = []step.Step{
	plan.Step, acquirelock.Step, loadkeys.Step, scale.Step, waitready.Step, stake.Step, unstake.Step,
	verifyconsensus.Step, savestate.Step, releaselock.Step, forceunlock.Step, run.Step,
}

// Find returns the step with the name.
func Find(name string) (step.Step, bool) {
	for _, s := range All {
		if s.Name() == name {
			return s, true
		}
	}
	return nil, false
}
