package cluster

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

var errNotYet = errors.New("full clusters aren't there yet: use --control-plane")

func (c *Cluster) prepareNode(context.Context, string, *state.Spec) error { return errNotYet }
func (c *Cluster) awaitNode(context.Context, state.Spec) error            { return errNotYet }
func (c *Cluster) addons(context.Context, state.Spec) error               { return errNotYet }
func removeCgroups(context.Context, state.Spec) error                     { return nil }
func guard(context.Context, state.Dir, state.Spec, proc.Identity, *os.File, *slog.Logger) error {
	return errNotYet
}
