package cli

import (
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/cosmos/cosmos-sdk/client/flags"
	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/app"
	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/initnode"
)

func initNodeCommand() *cobra.Command {
	var cfg initnode.Config
	cmd := &cobra.Command{
		Use:   "init-node",
		Short: "Prepare a node's volume before it starts (init container)",
		Long: `Prepare a node's volume before it starts.

Writes the configuration, puts the genesis in place, waits for the peers' names,
and refuses when the key is missing or malformed, or the volume belongs to
another key or network.`,
		Args: cobra.NoArgs, PersistentPreRunE: noHome,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			home, err := cmd.Flags().GetString(flags.FlagHome)
			if err != nil {
				return fmt.Errorf("read flags: %w", err)
			}
			cfg.Home = home
			return initnode.Run(ctx, cfg, initnode.Deps{Log: slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))})
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Name, "name", "", "the pod's name, which the Secret's name starts with")
	f.StringVar(&cfg.PodIP, "pod-ip", "", "the pod's address, told to other nodes")
	f.StringVar(&cfg.SecretsDir, "secrets", "/secrets", "folder with priv_validator_key.json and node_key.json, from the pod's Secret")
	f.StringVar(&cfg.KeysDir, "keys", "/keys", "folder in memory to copy the keys to, for the node")
	f.StringVar(&cfg.GenesisDir, "genesis", "/genesis", "folder with genesis.json and persistent_peers")
	f.DurationVar(&cfg.BlockTime, "block-time", time.Second, "pause between blocks")
	f.StringVar(&cfg.MinGasPrices, "min-gas-prices", "0"+app.Denom, "lowest gas price the node accepts")
	f.DurationVar(&cfg.Wait, "wait", time.Minute, "longest wait for the first peer's name to resolve")
	f.DurationVar(&cfg.Settle, "settle", 10*time.Second, "longest wait for the other peers' names once one resolves")
	return cmd
}
