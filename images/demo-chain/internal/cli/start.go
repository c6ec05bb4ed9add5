package cli

import (
	"fmt"

	"github.com/cosmos/cosmos-sdk/server"
	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/nodeconfig"
)

const doubleSignFlag = "consensus.double_sign_check_height"

// guardStart makes `start` look back for signatures of its own key while the
// node's signing state says that it has never signed: then any such signature
// was made by another process, or by this one before its volume was lost.
//
// It is decided at every start of the process and not written to config.toml:
// once the node has signed, the check would find the node's own signatures and
// keep a restarted validator, or a halted chain, down. The flag
// --consensus.double_sign_check_height, if given, has the last word.
func guardStart(start *cobra.Command) {
	run := start.RunE
	start.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed(doubleSignFlag) {
			cfg := server.GetServerContextFromCmd(cmd).Config
			signed, err := nodeconfig.HasSigned(cfg.PrivValidatorStateFile())
			if err != nil {
				return fmt.Errorf("start node: %w", err)
			}
			cfg.Consensus.DoubleSignCheckHeight = 0
			if !signed {
				cfg.Consensus.DoubleSignCheckHeight = nodeconfig.GuardedCommits
			}
		}
		return run(cmd, args)
	}
}
