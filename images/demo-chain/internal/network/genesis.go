package network

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"cosmossdk.io/math"
	cmttypes "github.com/cometbft/cometbft/types"
	"github.com/cosmos/cosmos-sdk/client"
	clienttx "github.com/cosmos/cosmos-sdk/client/tx"
	"github.com/cosmos/cosmos-sdk/codec"
	cryptocodec "github.com/cosmos/cosmos-sdk/crypto/codec"
	sdk "github.com/cosmos/cosmos-sdk/types"
	"github.com/cosmos/cosmos-sdk/types/module"
	"github.com/cosmos/cosmos-sdk/types/tx/signing"
	authsigning "github.com/cosmos/cosmos-sdk/x/auth/signing"
	authtypes "github.com/cosmos/cosmos-sdk/x/auth/types"
	banktypes "github.com/cosmos/cosmos-sdk/x/bank/types"
	"github.com/cosmos/cosmos-sdk/x/genutil"
	genutiltypes "github.com/cosmos/cosmos-sdk/x/genutil/types"
	slashingtypes "github.com/cosmos/cosmos-sdk/x/slashing/types"
	stakingtypes "github.com/cosmos/cosmos-sdk/x/staking/types"

	"github.com/rollcall-dev/rollcall/images/demo-chain/internal/app"
)

// Codec is what it takes to write this chain's genesis.
type Codec struct {
	Codec    codec.Codec
	TxConfig client.TxConfig
	Modules  module.BasicManager
}

// minEvidenceAge keeps double signatures punishable for long enough to be seen
// even when a demo's unbonding time is only seconds.
const minEvidenceAge = 10 * time.Minute

// genesis returns genesis.json: every identity funded, the first
// opts.Validators of them with a signed transaction that makes them validators.
func (c Codec) genesis(opts Options, ids []identity) ([]byte, error) {
	state := c.Modules.DefaultGenesis(c.Codec)
	if err := c.fund(state, opts, ids); err != nil {
		return nil, err
	}
	c.setParams(state, opts)

	txs := make([]sdk.Tx, 0, opts.Validators)
	for _, id := range ids[:opts.Validators] {
		tx, err := c.createValidator(opts, id)
		if err != nil {
			return nil, fmt.Errorf("sign genesis transaction of validator %d: %w", id.ordinal, err)
		}
		txs = append(txs, tx)
	}
	state, err := genutil.SetGenTxsInAppGenesisState(c.Codec, c.TxConfig.TxJSONEncoder(), state, txs)
	if err != nil {
		return nil, fmt.Errorf("add genesis transactions: %w", err)
	}
	if err := c.Modules.ValidateGenesis(c.Codec, c.TxConfig, state); err != nil {
		return nil, fmt.Errorf("check genesis: %w", err)
	}
	return encodeGenesis(opts, state)
}

func encodeGenesis(opts Options, state map[string]json.RawMessage) ([]byte, error) {
	appState, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("encode genesis state: %w", err)
	}
	doc := genutiltypes.NewAppGenesisWithVersion(opts.ChainID, appState)
	doc.AppName = app.Name
	doc.GenesisTime = opts.GenesisTime
	doc.Consensus.Params = cmttypes.DefaultConsensusParams()
	doc.Consensus.Params.Evidence.MaxAgeDuration = max(opts.UnbondingTime, minEvidenceAge)
	doc.Consensus.Params.Evidence.MaxAgeNumBlocks = int64(doc.Consensus.Params.Evidence.MaxAgeDuration/opts.BlockTime) + 1
	if err := doc.ValidateAndComplete(); err != nil {
		return nil, fmt.Errorf("check genesis: %w", err)
	}
	raw, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode genesis: %w", err)
	}
	return raw, nil
}

func (c Codec) fund(state map[string]json.RawMessage, opts Options, ids []identity) error {
	coins := sdk.NewCoins(sdk.NewInt64Coin(app.Denom, opts.Balance))
	accounts := make(authtypes.GenesisAccounts, 0, len(ids))
	bank := banktypes.GetGenesisStateFromAppState(c.Codec, state)
	for _, id := range ids {
		accounts = append(accounts, authtypes.NewBaseAccountWithAddress(id.account()))
		bank.Balances = append(bank.Balances, banktypes.Balance{Address: id.account().String(), Coins: coins})
		bank.Supply = bank.Supply.Add(coins...)
	}
	bank.Balances = banktypes.SanitizeGenesisBalances(bank.Balances)
	state[banktypes.ModuleName] = c.Codec.MustMarshalJSON(bank)

	auth := authtypes.GetGenesisStateFromAppState(c.Codec, state)
	packed, err := authtypes.PackAccounts(authtypes.SanitizeGenesisAccounts(accounts))
	if err != nil {
		return fmt.Errorf("encode genesis accounts: %w", err)
	}
	auth.Accounts = packed
	state[authtypes.ModuleName] = c.Codec.MustMarshalJSON(&auth)
	return nil
}

func (c Codec) setParams(state map[string]json.RawMessage, opts Options) {
	staking := stakingtypes.GetGenesisStateFromAppState(c.Codec, state)
	staking.Params.BondDenom = app.Denom
	staking.Params.UnbondingTime = opts.UnbondingTime
	staking.Params.MaxValidators = uint32(opts.MaxValidators)
	staking.Params.MinCommissionRate = math.LegacyZeroDec()
	state[stakingtypes.ModuleName] = c.Codec.MustMarshalJSON(staking)

	var slashing slashingtypes.GenesisState
	c.Codec.MustUnmarshalJSON(state[slashingtypes.ModuleName], &slashing)
	slashing.Params.SignedBlocksWindow = int64(opts.SignedBlocksWindow)
	slashing.Params.MinSignedPerWindow = math.LegacyNewDecWithPrec(5, 1)
	slashing.Params.DowntimeJailDuration = opts.JailTime
	slashing.Params.SlashFractionDowntime = math.LegacyNewDecWithPrec(1, 2)
	slashing.Params.SlashFractionDoubleSign = math.LegacyNewDecWithPrec(5, 2)
	state[slashingtypes.ModuleName] = c.Codec.MustMarshalJSON(&slashing)
}

// createValidator is the signed transaction with which a genesis validator
// stakes. In the genesis block every account has number and sequence 0.
func (c Codec) createValidator(opts Options, id identity) (sdk.Tx, error) {
	pub, err := cryptocodec.FromCmtPubKeyInterface(id.consensus.PubKey())
	if err != nil {
		return nil, fmt.Errorf("convert consensus key: %w", err)
	}
	msg, err := stakingtypes.NewMsgCreateValidator(
		id.valoper(), pub, sdk.NewInt64Coin(app.Denom, opts.Stake),
		stakingtypes.Description{Moniker: nodeName(id.ordinal)},
		stakingtypes.NewCommissionRates(math.LegacyNewDecWithPrec(1, 1), math.LegacyNewDecWithPrec(2, 1), math.LegacyNewDecWithPrec(1, 2)),
		math.OneInt(),
	)
	if err != nil {
		return nil, fmt.Errorf("make message: %w", err)
	}
	builder := c.TxConfig.NewTxBuilder()
	if err := builder.SetMsgs(msg); err != nil {
		return nil, fmt.Errorf("make transaction: %w", err)
	}
	builder.SetGasLimit(200_000)
	// The node's address, as the usual tools put it into the memo.
	builder.SetMemo(fmt.Sprintf("%s@%s", id.nodeID(), opts.peerHost(id.ordinal)))

	mode := signing.SignMode_SIGN_MODE_DIRECT
	// What is signed includes the signer's key and mode, so these go in first.
	unsigned := signing.SignatureV2{PubKey: id.operator.PubKey(), Data: &signing.SingleSignatureData{SignMode: mode}}
	if err := builder.SetSignatures(unsigned); err != nil {
		return nil, fmt.Errorf("set signer: %w", err)
	}
	signer := authsigning.SignerData{Address: id.account().String(), ChainID: opts.ChainID, PubKey: id.operator.PubKey()}
	sig, err := clienttx.SignWithPrivKey(context.Background(), mode, signer, builder, id.operator, c.TxConfig, 0)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if err := builder.SetSignatures(sig); err != nil {
		return nil, fmt.Errorf("set signature: %w", err)
	}
	return builder.GetTx(), nil
}
