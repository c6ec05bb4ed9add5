package step_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/api/v1alpha1"
	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/step"
)

func TestWantedKeepsToTheNetworksLimits(t *testing.T) {
	t.Parallel()
	n := &v1alpha1.ValidatorNetwork{}
	n.Namespace, n.Name = "net", "demo"
	n.Spec.Validators, n.Spec.Safety.MinValidators, n.Spec.Safety.MaxValidators = 7, 4, 16
	for name, c := range map[string]struct {
		asked step.Validators
		want  int
		err   string
	}{
		"the network's wish when nothing is asked": {0, 7, ""},
		"the floor":         {4, 4, ""},
		"the ceiling":       {16, 16, ""},
		"above the ceiling": {17, 0, "17 validators are above the limit of 16; ask for fewer, or raise spec.safety.maxValidators of ValidatorNetwork net/demo"},
		"below the floor":   {3, 0, "3 validators are below the safety minimum of 4; ask for at least 4, or lower spec.safety.minValidators of ValidatorNetwork net/demo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := (&step.Deps{Common: step.Common{Wanted: c.asked}}).Wanted(n)
			if c.err != "" {
				require.Equal(t, fault.Config, fault.CodeOf(err))
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestRunKnowsTheKindsOfRuns(t *testing.T) {
	t.Parallel()
	for kind, api := range map[string]string{"Workflow": "argoproj.io/v1alpha1", "Job": "batch/v1", "Pod": "v1", "": ""} {
		got := (&step.Deps{Common: step.Common{RunKind: kind, RunName: "r", RunUID: "u"}}).Run()
		require.Equal(t, v1alpha1.RunReference{APIVersion: api, Kind: kind, Name: "r", UID: "u"}, got)
	}
	got := (&step.Deps{Common: step.Common{RunKind: "Job", RunAPIVersion: "batch/v2"}}).Run()
	require.Equal(t, "batch/v2", got.APIVersion)
}

func TestAStepUnderTheLockNeedsARun(t *testing.T) {
	t.Parallel()
	_, err := (&step.Deps{}).Lock(&v1alpha1.ValidatorNetwork{})
	require.Equal(t, fault.Config, fault.CodeOf(err))
	require.ErrorContains(t, err, "ROLLCALL_RUN_UID: is required to work under the lock")
}
