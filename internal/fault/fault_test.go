package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

// The numbers are an interface: workflows and podFailurePolicy rules use them.
func TestExitCodesStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	want := map[fault.Code]struct {
		number int
		name   string
	}{
		fault.OK: {0, "OK"}, fault.Unexpected: {1, "Unexpected"}, fault.Config: {2, "BadConfiguration"},
		fault.LockBusy: {3, "LockBusy"}, fault.LockLost: {4, "LockLost"}, fault.Refused: {5, "Refused"},
		fault.TimedOut: {6, "TimedOut"}, fault.Chain: {7, "ChainRefused"}, fault.Transient: {75, "Transient"},
	}
	require.Len(t, fault.Codes, len(want), "the table of the documentation has every code")
	seen := map[fault.Code]bool{}
	for _, e := range fault.Codes {
		w, ok := want[e.Code]
		require.True(t, ok, "code %d", e.Code)
		require.False(t, seen[e.Code], "code %d twice", e.Code)
		seen[e.Code] = true
		require.Equal(t, w.number, int(e.Code))
		require.Equal(t, w.name, e.Code.String())
		require.NotEmpty(t, e.Meaning)
		require.Regexp(t, `^[A-Z][A-Za-z]+$`, e.Name, "names are reasons of conditions and events")
		require.NotEqual(t, 64, int(e.Code), "64 is the Argo executor's")
		require.Less(t, int(e.Code), 128, "128 and more are signals'")
	}
	require.Equal(t, "Code42", fault.Code(42).String())
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	refused := fault.New(fault.Refused, "unsafe")
	cases := map[string]struct {
		err  error
		want fault.Code
	}{
		"no error is OK": {nil, fault.OK},
		"an error nobody classified is unexpected":     {io.EOF, fault.Unexpected},
		"a classified error has its code":              {refused, fault.Refused},
		"wrapping keeps the code":                      {fmt.Errorf("scale: %w", refused), fault.Refused},
		"the outermost code counts":                    {fault.New(fault.Transient, "again: %w", refused), fault.Transient},
		"a joined error has its first part's code":     {errors.Join(io.EOF, refused, fault.New(fault.Chain, "no")), fault.Refused},
		"an expired deadline is a time-out":            {fmt.Errorf("ask node: %w", context.DeadlineExceeded), fault.TimedOut},
		"a classified deadline keeps its code":         {fault.New(fault.Transient, "ask: %w", context.DeadlineExceeded), fault.Transient},
		"a cancelled context alone is unexpected":      {context.Canceled, fault.Unexpected},
		"a code put on a deadline by joining is found": {errors.Join(context.DeadlineExceeded, refused), fault.Refused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, fault.CodeOf(c.err))
			require.Equal(t, c.err != nil, fault.Is(c.err, c.want), "no error is no fault, not even OK")
		})
	}
}

func TestAdviceFollowsTheCauseInOneLine(t *testing.T) {
	t.Parallel()
	err := fault.New(fault.Config, "get Secret %s: %w", "a", io.EOF).Do("create %s", "it")
	require.Equal(t, "get Secret a: EOF; create it", err.Error())
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "get Secret a", fault.New(fault.Config, "get Secret a").Error())
}
