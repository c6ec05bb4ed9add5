package steps_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/kelseyhightower/envconfig"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
	"github.com/rollcall-dev/rollcall/steps"
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

func TestEveryStepExplainsItself(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range steps.All {
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, s.Name(), "a name is a link and a container")
		require.False(t, seen[s.Name()], "%s twice", s.Name())
		seen[s.Name()] = true
		require.NotEmpty(t, s.Summary())
		found, ok := steps.Find(s.Name())
		require.True(t, ok)
		require.Equal(t, s.Name(), found.Name())

		var help strings.Builder
		require.NoError(t, s.Help(&help))
		require.True(t, strings.HasPrefix(help.String(), s.Name()+": "+s.Summary()), s.Name())
		for line := range strings.Lines(help.String()) {
			if strings.HasPrefix(line, step.Prefix+"_") {
				require.GreaterOrEqual(t, len(strings.Fields(line)), 5, "%s: a variable without a meaning: %s", s.Name(), line)
			}
		}
		for _, e := range fault.Codes {
			require.Contains(t, help.String(), "  "+strconv.Itoa(int(e.Code))+" ", "%s: exit code", s.Name())
			require.Contains(t, help.String(), e.Meaning)
		}
	}
	_, ok := steps.Find("no-such-step")
	require.False(t, ok)
}

// Variables are listed and checked by the harness and read by envconfig; both
// must mean the same ones in every step.
func TestHelpListsTheVariablesThatEnvconfigReads(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]any{
		"acquire-lock": &acquirelock.Config{}, "load-keys": &loadkeys.Config{}, "plan": &plan.Config{}, "release-lock": &releaselock.Config{},
		"run": &run.Config{}, "save-state": &savestate.Config{}, "scale": &scale.Config{}, "stake": &stake.Config{}, "unstake": &unstake.Config{},
		"verify-consensus": &verifyconsensus.Config{}, "wait-ready": &waitready.Config{}, "force-unlock": &forceunlock.Config{},
	} {
		s, ok := steps.Find(name)
		require.True(t, ok, name)
		var help, keys strings.Builder
		require.NoError(t, s.Help(&help))
		require.NoError(t, envconfig.Usagef(step.Prefix, config, &keys, "{{range .}}{{usage_key .}}\n{{end}}"))
		var listed []string
		for line := range strings.Lines(help.String()) {
			if strings.HasPrefix(line, step.Prefix+"_") {
				listed = append(listed, strings.Fields(line)[0])
			}
		}
		require.Equal(t, strings.Fields(keys.String()), listed, name)
	}
}

// Safety stands on the order: synced before staked, out of the set before stopped.
func TestChainsKeepTheOrder(t *testing.T) {
	t.Parallel()
	names := func(op step.Operation) string {
		var all []string
		for _, s := range run.Chains[op] {
			all = append(all, s.Name())
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, "acquire-lock load-keys plan scale wait-ready stake verify-consensus save-state release-lock", names(step.ScaleUp))
	require.Equal(t, "acquire-lock load-keys plan unstake verify-consensus scale wait-ready save-state release-lock", names(step.ScaleDown))
}
