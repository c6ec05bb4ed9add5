// Package cli is the command line of the demo chain: the node and the usual
// commands of a Cosmos SDK chain, and those that make and start a network.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	autocliv1 "cosmossdk.io/api/cosmos/autocli/v1"
	"cosmossdk.io/client/v2/autocli"
	"cosmossdk.io/depinject"
	"cosmossdk.io/log"
	cmtcfg "github.com/cometbft/cometbft/config"
	dbm "github.com/cosmos/cosmos-db"
	"github.com/cosmos/cosmos-sdk/client"
	"github.com/cosmos/cosmos-sdk/client/config"
	"github.com/cosmos/cosmos-sdk/client/flags"
	nodeservice "github.com/cosmos/cosmos-sdk/client/grpc/node"
	"github.com/cosmos/cosmos-sdk/client/keys"
	"github.com/cosmos/cosmos-sdk/client/rpc"
	"github.com/cosmos/cosmos-sdk/codec"
	codectypes "github.com/cosmos/cosmos-sdk/codec/types"
	"github.com/cosmos/cosmos-sdk/server"
	svrcmd "github.com/cosmos/cosmos-sdk/server/cmd"
	serverconfig "github.com/cosmos/cosmos-sdk/server/config"
	servertypes "github.com/cosmos/cosmos-sdk/server/types"
	"github.com/cosmos/cosmos-sdk/types/module"
	authcmd "github.com/cosmos/cosmos-sdk/x/auth/client/cli"
	"github.com/cosmos/cosmos-sdk/x/auth/tx"
	authtxconfig "github.com/cosmos/cosmos-sdk/x/auth/tx/config"
	authtypes "github.com/cosmos/cosmos-sdk/x/auth/types"
	genutilcli "github.com/cosmos/cosmos-sdk/x/genutil/client/cli"
	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/app"
)

// Execute runs the command that the process' arguments name.
func Execute() error {
	home := filepath.Join(os.Getenv("HOME"), "."+app.Name)
	root, err := newRoot(home)
	if err != nil {
		return err
	}
	return svrcmd.Execute(root, "", home)
}

func newRoot(home string) (*cobra.Command, error) {
	var (
		auto   autocli.AppOptions
		basics module.BasicManager
		ctx    client.Context
	)
	wiring := depinject.Configs(app.Config(), depinject.Supply(log.NewNopLogger(), HomeDir(home)), depinject.Provide(ProvideClientContext))
	if err := depinject.Inject(wiring, &auto, &basics, &ctx); err != nil {
		return nil, fmt.Errorf("wire command line: %w", err)
	}
	root := &cobra.Command{
		Use: app.Name, Short: "A small proof-of-stake chain for demonstrations and tests",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return prepare(cmd, ctx) },
	}
	root.AddCommand(
		genutilcli.InitCmd(basics, home),
		genutilcli.Commands(ctx.TxConfig, basics, home),
		keys.Commands(),
		server.StatusCommand(),
		queryCommand(),
		txCommand(),
		networkCommand(ctx.Codec, ctx.TxConfig, basics),
		initNodeCommand(),
	)
	server.AddCommands(root, home, newApplication, exportState, guardStart)

	node := nodeservice.NewNodeCommands()
	auto.ModuleOptions = map[string]*autocliv1.ModuleOptions{node.Name(): node.AutoCLIOptions()}
	if err := auto.EnhanceRootCommand(root); err != nil {
		return nil, fmt.Errorf("add module commands: %w", err)
	}
	root.PersistentFlags().String(flags.FlagChainID, "", "the network's chain id")
	return root, nil
}

func queryCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "query", Aliases: []string{"q"}, Short: "Query the chain", RunE: client.ValidateCmd, DisableFlagParsing: true}
	cmd.AddCommand(rpc.WaitTxCmd(), server.QueryBlockCmd(), server.QueryBlockResultsCmd(), authcmd.QueryTxCmd(), rpc.ValidatorCommand())
	return cmd
}

func txCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tx", Short: "Sign and send transactions", RunE: client.ValidateCmd, DisableFlagParsing: true}
	cmd.AddCommand(authcmd.GetSignCommand(), authcmd.GetBroadcastCommand(), authcmd.GetSimulateCmd())
	return cmd
}

// prepare loads the node's and the client's configuration for one command.
func prepare(cmd *cobra.Command, ctx client.Context) error {
	cmd.SetOut(cmd.OutOrStdout())
	cmd.SetErr(cmd.ErrOrStderr())
	ctx, err := client.ReadPersistentCommandFlags(ctx.WithCmdContext(cmd.Context()).WithViper(""), cmd.Flags())
	if err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	if ctx, err = config.ReadFromClientConfig(ctx); err != nil {
		return fmt.Errorf("read client.toml: %w", err)
	}
	if err = client.SetCmdClientContextHandler(ctx, cmd); err != nil {
		return fmt.Errorf("set client context: %w", err)
	}
	appConfig := serverconfig.DefaultConfig()
	appConfig.MinGasPrices = "0" + app.Denom
	return server.InterceptConfigsPreRunHandler(cmd, serverconfig.DefaultConfigTemplate, appConfig, cmtcfg.DefaultConfig())
}

// HomeDir is the default home folder, as its own type so that depinject finds it.
type HomeDir string

// ProvideClientContext makes the client context that all commands start from.
// Exported because depinject accepts nothing else.
func ProvideClientContext(
	home HomeDir, cdc codec.Codec, registry codectypes.InterfaceRegistry, options tx.ConfigOptions, amino *codec.LegacyAmino,
) (client.Context, error) {
	ctx := client.Context{}.WithCodec(cdc).WithInterfaceRegistry(registry).WithLegacyAmino(amino).
		WithInput(os.Stdin).WithAccountRetriever(authtypes.AccountRetriever{}).WithHomeDir(string(home)).WithViper("")
	options.TextualCoinMetadataQueryFn = authtxconfig.NewGRPCCoinMetadataQueryFn(ctx)
	txConfig, err := tx.NewTxConfigWithOptions(cdc, options)
	if err != nil {
		return client.Context{}, fmt.Errorf("make transaction codec: %w", err)
	}
	return ctx.WithTxConfig(txConfig), nil
}

// newApplication panics on failure because the SDK's signature has no room for
// an error; the server turns it into a failed start with that message.
func newApplication(logger log.Logger, db dbm.DB, trace io.Writer, opts servertypes.AppOptions) servertypes.Application {
	application, err := app.New(logger, db, trace, opts, server.DefaultBaseappOptions(opts)...)
	if err != nil {
		panic(err)
	}
	return application
}

func exportState(
	log.Logger, dbm.DB, io.Writer, int64, bool, []string, servertypes.AppOptions, []string,
) (servertypes.ExportedApp, error) {
	return servertypes.ExportedApp{}, errors.New("export state: not supported by the demo chain; start a new network instead")
}
