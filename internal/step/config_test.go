package step_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kelseyhightower/envconfig"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
)

// sample has a field of every kind.
type sample struct {
	step.Common
	StakeTimeout time.Duration `split_words:"true" default:"2m" desc:"how long"`
	Must         string        `required:"true" desc:"something needed"`
	Count        int32         `default:"3" desc:"how many"`
}

// unset takes every ROLLCALL_ variable away for the test's time. Tests that use
// it change the process's environment, so they don't run in parallel.
func unset(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if k, _, _ := strings.Cut(kv, "="); strings.HasPrefix(k, step.Prefix+"_") {
			t.Setenv(k, "") // so that it comes back
			require.NoError(t, os.Unsetenv(k))
		}
	}
}

func load(t *testing.T, env map[string]string) (sample, error) {
	t.Helper()
	unset(t)
	for k, v := range env {
		t.Setenv("ROLLCALL_"+k, v)
	}
	var s sample
	err := step.Load(&s)
	return s, err
}

func TestLoadFillsAConfiguration(t *testing.T) {
	s, err := load(t, map[string]string{
		"MUST": "x", "VALIDATORS": "5", "OPERATION": "scale-down", "STAKE_TIMEOUT": "90s", "DRY_RUN": "true",
		"RUN_UID": "u", "RUN_API_VERSION": "batch/v1", "COUNT": "7",
	})
	require.NoError(t, err)
	require.EqualValues(t, 5, s.Wanted)
	require.Equal(t, step.ScaleDown, s.Operation)
	require.Equal(t, 90*time.Second, s.StakeTimeout)
	require.True(t, s.DryRun)
	require.Equal(t, "u", s.RunUID)
	require.Equal(t, "batch/v1", s.RunAPIVersion)
	require.EqualValues(t, 7, s.Count)
}

func TestLoadTakesEmptyVariablesAsUnset(t *testing.T) {
	s, err := load(t, map[string]string{"MUST": "x", "DRY_RUN": "", "STAKE_TIMEOUT": "", "OPERATION": "", "COUNT": "", "NETWORK": ""})
	require.NoError(t, err)
	require.False(t, s.DryRun)
	require.Equal(t, 2*time.Minute, s.StakeTimeout)
	require.Equal(t, step.ScaleUp, s.Operation)
	require.EqualValues(t, 3, s.Count)
	require.Zero(t, s.Wanted, "not given: the network's recorded wish")
}

func TestLoadTakesAnEmptyRequiredVariableAsMissing(t *testing.T) {
	_, err := load(t, map[string]string{"MUST": ""})
	require.ErrorContains(t, err, "ROLLCALL_MUST: is required: something needed")
}

func TestLoadListsEveryProblemAtOnce(t *testing.T) {
	_, err := load(t, map[string]string{
		"VALIDATORS": "-1", "OPERATION": "sideways", "STAKE_TIMEOUT": "soon", "DRY_RUN": "perhaps", "COUNT": "many",
	})
	require.Equal(t, fault.Config, fault.CodeOf(err))
	for _, part := range []string{
		"ROLLCALL_VALIDATORS: must be a whole number from 1 to 1000", `"-1"`,
		"ROLLCALL_OPERATION: must be scale-up or scale-down", `"sideways"`,
		"ROLLCALL_STAKE_TIMEOUT: must be a duration such as 30s", "ROLLCALL_DRY_RUN: must be true or false",
		"ROLLCALL_COUNT: must be a whole number", "ROLLCALL_MUST: is required",
	} {
		require.ErrorContains(t, err, part)
	}
	line := step.Line(err)
	require.NotContains(t, line, "\n", "one line for the log and the termination message")
	require.Contains(t, line, "; ROLLCALL_")
}

func TestValidatorsAcceptsPlainDigitsOnly(t *testing.T) {
	for _, bad := range []string{
		"", "0", "-1", "+5", " 5", "5 ", "5.0", "5,0", "1e9", "1e2", "0x5", "05", "five", "5; rm -rf", "5; rm -rf /", "$(id)", "`id`",
		"5\n", "5\t", "5\x1b[0m", "٥", "５", "1001", "9999999999999999999999", "NaN", "Inf", "1_000", "5%", "--5", "'5'", `"5"`, "{{x}}",
	} {
		t.Run(fmt.Sprintf("%q", bad), func(t *testing.T) {
			_, err := load(t, map[string]string{"MUST": "x", "VALIDATORS": bad})
			require.Equal(t, fault.Config, fault.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, "ROLLCALL_VALIDATORS: must be a whole number from 1 to 1000 in plain digits, such as 5, not ")
			for _, c := range err.Error() {
				require.True(t, c >= ' ' && c <= '~', "%q has unprintable characters", err)
			}
		})
	}
	for good, want := range map[string]step.Validators{"1": 1, "5": 5, "10": 10, "1000": 1000} {
		s, err := load(t, map[string]string{"MUST": "x", "VALIDATORS": good})
		require.NoError(t, err)
		require.Equal(t, want, s.Wanted)
	}
}

func TestLoadNeverShowsOtherValues(t *testing.T) {
	const secret = "hunter2"
	_, err := load(t, map[string]string{"STAKE_TIMEOUT": secret, "DRY_RUN": secret, "COUNT": secret, "USER": secret, "REASON": secret})
	require.Error(t, err)
	require.NotContains(t, err.Error(), secret)
}

func TestLoadShortensWhatItQuotes(t *testing.T) {
	_, err := load(t, map[string]string{"MUST": "x", "VALIDATORS": strings.Repeat("9", 100_000), "OPERATION": strings.Repeat("x", 100_000)})
	require.Error(t, err)
	require.Less(t, len(err.Error()), 500)
}

func TestLoadReadsNumbersAsDecimal(t *testing.T) {
	for _, bad := range []string{"08", "010", "0x10", "1_0", "4294967296", "-010"} {
		_, err := load(t, map[string]string{"MUST": "x", "COUNT": bad})
		require.ErrorContains(t, err, "ROLLCALL_COUNT: must be a whole number", bad)
		require.Equal(t, fault.Config, fault.CodeOf(err))
	}
	for _, good := range []string{"0", "8", "-1", "+7"} {
		_, err := load(t, map[string]string{"MUST": "x", "COUNT": good})
		require.NoError(t, err, good)
	}
}

func TestLoadRefusesNegativeDurations(t *testing.T) {
	for _, bad := range []string{"-1s", "5", "1 m", "∞"} {
		_, err := load(t, map[string]string{"MUST": "x", "STAKE_TIMEOUT": bad})
		require.ErrorContains(t, err, "ROLLCALL_STAKE_TIMEOUT: must be a duration", bad)
	}
}

// The table and the checks name variables by a rule of their own; the values
// are read by envconfig.
func TestVariablesAreTheOnesThatEnvconfigReads(t *testing.T) {
	unset(t)
	var ours, theirs strings.Builder
	require.NoError(t, step.WriteVariables(&ours, &sample{}))
	require.NoError(t, envconfig.Usagef(step.Prefix, &sample{}, &theirs, "{{range .}}{{usage_key .}}\n{{end}}"))
	keys := strings.Fields(theirs.String())
	require.Greater(t, len(keys), 10)
	lines := strings.Split(strings.TrimSpace(ours.String()), "\n")[1:]
	require.Len(t, lines, len(keys))
	for i, line := range lines {
		require.Equal(t, keys[i], strings.Fields(line)[0])
	}
}

func TestVariablesTableShowsTypeDefaultAndMeaning(t *testing.T) {
	unset(t)
	var b strings.Builder
	require.NoError(t, step.WriteVariables(&b, &sample{}))
	for _, want := range []string{
		`VARIABLE +TYPE +DEFAULT +MEANING`,
		`ROLLCALL_STAKE_TIMEOUT +duration +2m +how long`,
		`ROLLCALL_MUST +string +\(required\) +something needed`,
		`ROLLCALL_COUNT +int32 +3 +how many`,
		`ROLLCALL_VALIDATORS +number +- +wanted total`,
		`ROLLCALL_OPERATION +word +scale-up +`,
		`ROLLCALL_DRY_RUN +bool +- +true: plan only`,
	} {
		require.Regexp(t, want, b.String())
	}
}
