// Package app assembles the demo chain's application: a Cosmos SDK chain with
// the modules that make up proof of stake (auth, bank, staking, slashing,
// distribution, mint, evidence, genutil, consensus) and nothing else.
//
// It guarantees the behaviour of those modules as released; it holds no state
// machine code of its own. It does not guarantee that its state can be
// exported or upgraded: demo networks are made, used and thrown away.
package app

import (
	"fmt"
	"io"

	runtimev1alpha1 "cosmossdk.io/api/cosmos/app/runtime/v1alpha1"
	appv1alpha1 "cosmossdk.io/api/cosmos/app/v1alpha1"
	authmodulev1 "cosmossdk.io/api/cosmos/auth/module/v1"
	bankmodulev1 "cosmossdk.io/api/cosmos/bank/module/v1"
	consensusmodulev1 "cosmossdk.io/api/cosmos/consensus/module/v1"
	distrmodulev1 "cosmossdk.io/api/cosmos/distribution/module/v1"
	evidencemodulev1 "cosmossdk.io/api/cosmos/evidence/module/v1"
	genutilmodulev1 "cosmossdk.io/api/cosmos/genutil/module/v1"
	mintmodulev1 "cosmossdk.io/api/cosmos/mint/module/v1"
	slashingmodulev1 "cosmossdk.io/api/cosmos/slashing/module/v1"
	stakingmodulev1 "cosmossdk.io/api/cosmos/staking/module/v1"
	txconfigv1 "cosmossdk.io/api/cosmos/tx/config/v1"
	"cosmossdk.io/core/appconfig"
	"cosmossdk.io/depinject"
	"cosmossdk.io/log"
	dbm "github.com/cosmos/cosmos-db"
	"github.com/cosmos/cosmos-sdk/baseapp"
	"github.com/cosmos/cosmos-sdk/runtime"
	"github.com/cosmos/cosmos-sdk/server/api"
	"github.com/cosmos/cosmos-sdk/server/config"
	servertypes "github.com/cosmos/cosmos-sdk/server/types"
	"github.com/cosmos/cosmos-sdk/types/module"
	"github.com/cosmos/cosmos-sdk/x/genutil"
	genutiltypes "github.com/cosmos/cosmos-sdk/x/genutil/types"

	// The modules register themselves with depinject.
	_ "cosmossdk.io/x/evidence"
	_ "github.com/cosmos/cosmos-sdk/x/auth"
	_ "github.com/cosmos/cosmos-sdk/x/auth/tx/config"
	_ "github.com/cosmos/cosmos-sdk/x/bank"
	_ "github.com/cosmos/cosmos-sdk/x/consensus"
	_ "github.com/cosmos/cosmos-sdk/x/distribution"
	_ "github.com/cosmos/cosmos-sdk/x/mint"
	_ "github.com/cosmos/cosmos-sdk/x/slashing"
	_ "github.com/cosmos/cosmos-sdk/x/staking"
)

const (
	// Name is the application's name, as in genesis.json and `status`.
	Name = "demo-chain"
	// Bech32Prefix starts every account address; validators' operator
	// addresses have Bech32Prefix + "valoper".
	Bech32Prefix = "cosmos"
	// Denom is the staking token. 1,000,000 of it is one unit of voting power.
	Denom = "stake"
)

// App is the chain's application with a readiness endpoint added to its API.
type App struct {
	*runtime.App
}

// RegisterAPIRoutes adds /readyz to the module routes of the API server.
func (a *App) RegisterAPIRoutes(server *api.Server, cfg config.APIConfig) {
	server.Router.Handle(ReadyPath, newReadyHandler(server.ClientCtx.Client)).Methods("GET")
	a.App.RegisterAPIRoutes(server, cfg)
}

// Config is the wiring of the modules, for depinject.
func Config() depinject.Config {
	basics := map[string]module.AppModuleBasic{
		// Without a validator for genesis transactions the genesis commands panic.
		genutiltypes.ModuleName: genutil.NewAppModuleBasic(genutiltypes.DefaultMessageValidator),
	}
	return depinject.Configs(depinject.Supply(basics), appconfig.Compose(&appv1alpha1.Config{Modules: modules()}))
}

func modules() []*appv1alpha1.ModuleConfig {
	return []*appv1alpha1.ModuleConfig{
		{Name: "runtime", Config: appconfig.WrapAny(&runtimev1alpha1.Module{
			AppName: Name,
			// Slashing counts the last block's signatures before staking
			// computes the next validator set.
			BeginBlockers: []string{"mint", "distribution", "slashing", "evidence", "staking"},
			EndBlockers:   []string{"staking"},
			// genutil delivers the genesis transactions: after the accounts,
			// balances and parameters they need.
			InitGenesis: []string{
				"auth", "bank", "distribution", "staking", "slashing", "mint", "genutil", "evidence", "consensus",
			},
			OverrideStoreKeys: []*runtimev1alpha1.StoreKeyConfig{{ModuleName: "auth", KvStoreKey: "acc"}},
		})},
		{Name: "auth", Config: appconfig.WrapAny(&authmodulev1.Module{
			Bech32Prefix: Bech32Prefix,
			ModuleAccountPermissions: []*authmodulev1.ModuleAccountPermission{
				{Account: "fee_collector"},
				{Account: "distribution"},
				{Account: "mint", Permissions: []string{"minter"}},
				{Account: "bonded_tokens_pool", Permissions: []string{"burner", "staking"}},
				{Account: "not_bonded_tokens_pool", Permissions: []string{"burner", "staking"}},
			},
		})},
		{Name: "bank", Config: appconfig.WrapAny(&bankmodulev1.Module{})},
		{Name: "staking", Config: appconfig.WrapAny(&stakingmodulev1.Module{})},
		{Name: "slashing", Config: appconfig.WrapAny(&slashingmodulev1.Module{})},
		{Name: "distribution", Config: appconfig.WrapAny(&distrmodulev1.Module{})},
		{Name: "evidence", Config: appconfig.WrapAny(&evidencemodulev1.Module{})},
		{Name: "mint", Config: appconfig.WrapAny(&mintmodulev1.Module{})},
		{Name: "genutil", Config: appconfig.WrapAny(&genutilmodulev1.Module{})},
		{Name: "consensus", Config: appconfig.WrapAny(&consensusmodulev1.Module{})},
		{Name: "tx", Config: appconfig.WrapAny(&txconfigv1.Config{})},
	}
}

// New builds the application on db and loads its last state.
func New(
	logger log.Logger, db dbm.DB, trace io.Writer, opts servertypes.AppOptions, baseOpts ...func(*baseapp.BaseApp),
) (*App, error) {
	var builder *runtime.AppBuilder
	if err := depinject.Inject(depinject.Configs(Config(), depinject.Supply(logger, opts)), &builder); err != nil {
		return nil, fmt.Errorf("wire application modules: %w", err)
	}
	built := builder.Build(db, trace, baseOpts...)
	if err := built.RegisterStreamingServices(opts, nil); err != nil {
		return nil, fmt.Errorf("register streaming services: %w", err)
	}
	if err := built.Load(true); err != nil {
		return nil, fmt.Errorf("load application state: %w", err)
	}
	return &App{App: built}, nil
}
