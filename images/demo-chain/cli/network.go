package cli

import (
	"fmt"

	"github.com/cosmos/cosmos-sdk/client"
	"github.com/cosmos/cosmos-sdk/codec"
	"github.com/cosmos/cosmos-sdk/types/module"
	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/network"
)

// noHome replaces the root's preparation, which reads and creates files in a
// node's home, for commands that have none.
func noHome(*cobra.Command, []string) error { return nil }

func networkCommand(cdc codec.Codec, txConfig client.TxConfig, modules module.BasicManager) *cobra.Command {
	opts := network.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Make the keys and the genesis of a new network",
		Long: `Make the keys and the genesis of a new network.

With --format files the output folder gets a home per node, validator-<i>, ready
for "start --home", its operator's 24 words in operator.mnemonic, and
network.json with everything that is public.

With --format kubernetes it gets YAML: a Secret validator-<i>-keys per validator
and the ConfigMap chain-genesis. Apply it with "kubectl apply --server-side",
since the plain apply would copy the secrets into an annotation.

Nothing secret is printed; secret files have mode 0600.`,
		Args: cobra.NoArgs, PersistentPreRunE: noHome,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := network.Make(network.Codec{Codec: cdc, TxConfig: txConfig, Modules: modules}, opts)
			if err != nil {
				return fmt.Errorf("make network: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "network %s: %d validators in the genesis, %d accounts with keys, written to %s\n",
				made.ChainID, made.Validators, len(made.Nodes), opts.Output)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.ChainID, "chain-id", opts.ChainID, "the network's chain id")
	f.IntVar(&opts.Validators, "validators", opts.Validators, "validators staked in the genesis")
	f.IntVar(&opts.Accounts, "accounts", opts.Accounts, "validators with keys and funds, those of the genesis included")
	f.Int64Var(&opts.Balance, "balance", opts.Balance, "funds of each account, in stake")
	f.Int64Var(&opts.Stake, "stake", opts.Stake, "what each genesis validator stakes; 1000000 is one unit of power")
	f.DurationVar(&opts.UnbondingTime, "unbonding-time", opts.UnbondingTime, "time until undelegated stake is free")
	f.DurationVar(&opts.JailTime, "jail-time", opts.JailTime, "shortest time in jail after missing too many blocks")
	f.IntVar(&opts.SignedBlocksWindow, "signed-blocks-window", opts.SignedBlocksWindow, "blocks of which a validator must sign half")
	f.IntVar(&opts.MaxValidators, "max-validators", opts.MaxValidators, "size limit of the validator set")
	f.StringVar(&opts.Output, "output", "", "folder to write to; must be empty or new")
	f.StringVar(&opts.Format, "format", opts.Format, "files or kubernetes")
	f.StringVar(&opts.Seed, "seed", "", "make the same keys every time, for tests; whoever knows the seed has the keys")
	f.StringVar(&opts.Address, "address", opts.Address, "format files: IPv4 address of node 0; node i listens i addresses further")
	f.DurationVar(&opts.BlockTime, "block-time", opts.BlockTime, "pause between blocks; format files sets it in the homes")
	f.StringVar(&opts.MinGasPrices, "min-gas-prices", opts.MinGasPrices, "format files: lowest gas price the nodes accept")
	f.StringVar(&opts.Service, "service", opts.Service, "format kubernetes: name of the headless Service")
	return cmd
}
