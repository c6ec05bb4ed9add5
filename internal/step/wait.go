package step

import (
	"context"
	"errors"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// progressEvery is how often an unchanged wait says that it still waits.
const progressEvery = 10 * time.Second

// errWaiting is the retryable "not yet".
var errWaiting = errors.New("not yet")

// Wait asks cond every so often until it is done, for at most limit. cond
// returns what it is waiting for; a change of it is logged. Transient errors
// and time-outs of single questions are waited out, any other error ends the
// wait. When the time is up, the last word of cond is in the error.
func (d *Deps) Wait(ctx context.Context, what string, limit, every time.Duration, cond func(context.Context) (done bool, waitingFor string, err error)) error {
	start := d.Now()
	var last, said string
	var saidAt time.Time
	b := retry.WithMaxDuration(limit, retry.WithJitterPercent(10, retry.NewConstant(every)))
	err := retry.Do(ctx, b, func(ctx context.Context) error {
		done, now, err := cond(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if c := fault.CodeOf(err); c != fault.Transient && c != fault.TimedOut {
				return err
			}
			now = Line(err)
		case done:
			return nil
		}
		last = now
		if now != said || time.Since(saidAt) > progressEvery {
			said, saidAt = now, time.Now()
			d.Log.Info("waiting: "+what, "for", now, "elapsed", d.Now().Sub(start).Round(100*time.Millisecond).String())
		}
		return retry.RetryableError(errWaiting)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errWaiting):
		return fault.New(fault.TimedOut, "%s: not after %s: %s", what, limit, last).Do("look into it and run again: the run resumes")
	case ctx.Err() != nil:
		if cause := context.Cause(ctx); fault.CodeOf(cause) != fault.Unexpected {
			return cause
		}
		return fault.New(fault.Transient, "%s: stopped while waiting for: %s", what, last).Do("run again to resume")
	}
	return err
}
