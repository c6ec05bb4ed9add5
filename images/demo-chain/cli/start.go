package cli

import (
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/cosmos/cosmos-sdk/server"
	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/signguard"
)

// guardStart makes `start` ask the node's peers whether its key already signs
// elsewhere, as long as the node itself has never signed.
func guardStart(start *cobra.Command) {
	guarded := start.Flags().Bool("double-sign-guard", true,
		"refuse to start a node that never signed while its key signs elsewhere; switch off only if nothing else has the key")
	wait := start.Flags().Duration("double-sign-guard-wait", time.Minute,
		"longest wait for a peer's answer about the key; validators of the genesis don't wait")
	run := start.RunE
	start.RunE = func(cmd *cobra.Command, args []string) error {
		if *guarded {
			if err := guard(cmd, *wait); err != nil {
				return fmt.Errorf("start node: %w", err)
			}
		}
		return run(cmd, args)
	}
}

func guard(cmd *cobra.Command, wait time.Duration) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	subject, err := signguard.SubjectOf(server.GetServerContextFromCmd(cmd).Config)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	return signguard.Check(ctx, subject, wait, signguard.Dial, log)
}
