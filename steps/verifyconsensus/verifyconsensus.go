// Package verifyconsensus is the step that calls the roll: it proves from block
// signatures that validators joined consensus, or left it.
//
// It guarantees, when it succeeds, that every wanted validator was in the
// consensus set and signed the last SignedBlocks canonical commits in a row, and
// that every other validator of this deployment was in none of the sets that
// had to sign them, as told by a node that isn't the subject and confirmed by a
// second one, while the height grew. "Bonded" or an included transaction alone
// prove nothing: a change is effective two blocks later. It changes nothing and
// works with or without the lock.
package verifyconsensus

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rollcall-dev/rollcall/internal/census"
	"github.com/rollcall-dev/rollcall/internal/network"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/internal/workload"
)

// Config of the step.
type Config struct {
	step.Common
	VerifyTimeout time.Duration `split_words:"true" default:"3m" desc:"how long joining or leaving may take to be proven"`
	VerifyPoll    time.Duration `split_words:"true" default:"1s" desc:"how often the last commits are read; about the chain's block time"`
}

// Step is verify-consensus.
var Step = step.Define("verify-consensus", "prove from block signatures who is in consensus and who is not",
	func(c *Config) *step.Common { return &c.Common }, Run)

// Run does the step.
func Run(ctx context.Context, c Config, d *step.Deps) (step.Result, error) {
	if c.DryRun {
		return step.Result{Message: "dry run: nothing to verify"}, nil
	}
	// By hand, without a run, it just looks.
	return d.Work(ctx, c.RunUID == "", func(ctx context.Context, s *step.Session) (step.Result, error) { return work(ctx, s, c) })
}

func work(ctx context.Context, s *step.Session, c Config) (step.Result, error) {
	wanted, err := s.Wanted(s.Network)
	if err != nil {
		return step.Result{}, err
	}
	n := min(int(s.Network.Spec.Safety.SignedBlocks), census.Window)
	subjects := newcomers(s, wanted)
	var first int64
	var found *census.Census
	proven := map[int]bool{}
	err = s.Wait(ctx, "consensus to be proven", c.VerifyTimeout, c.VerifyPoll, func(ctx context.Context) (bool, string, error) {
		var err error
		if found, err = s.Taker.Take(ctx, census.Options{Wanted: wanted, Subjects: subjects}); err != nil {
			return false, "", err
		}
		if first == 0 {
			first = found.Height
		}
		var waiting []string
		for i := range found.Validators {
			v := &found.Validators[i]
			if w := missing(found, v, wanted, n); w != "" && !proven[v.Ordinal] {
				waiting = append(waiting, fmt.Sprintf("validator %d %s", v.Ordinal, w))
				continue
			}
			proven[v.Ordinal] = true
		}
		if len(waiting) == 0 && found.Height == first { // a halted chain proves nothing
			waiting = append(waiting, fmt.Sprintf("a block after %d", first))
		}
		return len(waiting) == 0, fmt.Sprintf("at height %d: %s", found.Height, strings.Join(waiting, "; ")), nil
	})
	if err != nil {
		return step.Result{}, err
	}
	if err := Write(os.Stdout, s.Network.Spec.Workload.StatefulSet, found); err != nil {
		return step.Result{}, err
	}
	msg := fmt.Sprintf("proven at height %d: %d validators signed %d blocks in a row; %s", found.Height, wanted, n, found.Power)
	if s.Held != nil {
		s.Event(ctx, network.Normal, "Verified", msg)
	}
	return step.Result{Message: msg}, nil
}

// newcomers are the validators that weren't proven in consensus before: their
// own nodes are no witnesses.
func newcomers(s *step.Session, wanted int) (out []int) {
	for o := range wanted {
		if e := network.Entry(s.Network, o); e == nil || !e.Signing {
			out = append(out, o)
		}
	}
	return out
}

// missing says what a validator's proof lacks; empty when it is complete.
func missing(c *census.Census, v *census.Validator, wanted, n int) string {
	a := v.Identity.Address
	switch {
	case v.Ordinal < wanted && v.Member == nil:
		return fmt.Sprintf("to join the consensus set (%s)", v.Record.Status)
	case v.Ordinal < wanted && c.Streak(a) < n:
		return fmt.Sprintf("to sign %d blocks in a row (%d so far)", n, c.Streak(a))
	case v.Ordinal >= wanted && v.Member != nil:
		return "to leave the consensus set"
	case v.Ordinal >= wanted && c.Out(a) < n:
		return fmt.Sprintf("to stay out of the consensus set for %d blocks (%d so far)", n, c.Out(a))
	}
	return ""
}

// Write writes the roll call as a table.
func Write(w io.Writer, statefulSet string, c *census.Census) error {
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(t, "VALIDATOR\tSTATE\tIN SET\tPOWER\tSIGNED\tADDRESS")
	for _, v := range c.Validators {
		in := "no"
		if v.Member != nil {
			in = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d of %d\t%s\n", workload.PodName(statefulSet, v.Ordinal), v.Record.Status, in, v.Power(), v.Signed, len(c.Commits), v.Identity.Address)
	}
	return t.Flush()
}
