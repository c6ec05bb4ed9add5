// Package cosmos is the chain adapter for chains built on the Cosmos SDK (0.46 to
// 0.53 with x/staking and x/slashing) and CometBFT 0.38. It needs nothing but
// the nodes' RPC port, and signs in this process.
//
// Guarantees, beyond those of chain.Adapter:
//   - Every endpoint proves its chain id before it is used; another one's is a
//     fault.Config error.
//   - A transaction can enter a block only up to its timeout height. The same
//     bytes are sent again, through another node if need be, until they are in
//     a block or that height has passed; nothing else is signed before. If the
//     lock is lost meanwhile, nothing is sent any more.
//   - The state is read again before each transaction that is signed, so two
//     processes that do the same thing end with one of them having done it.
//   - Nothing is sent that would push a validator out of a full set, put one
//     outside of it, use a tombstoned key, or take the last validator away.
//
// Not guaranteed: agreement between nodes (one is asked, the others are for when
// it fails), or that a validator which staked signs blocks.
//
// # Options
//
//	bech32Prefix             cosmos   addresses are PREFIX1..., PREFIXvaloper1..., PREFIXvalcons1...
//	denom                    stake    what is staked
//	coinType                 118      SLIP-44 number N in the path m/44'/N'/0'/0/0 of a mnemonic's key
//	gasPrice                          price of gas, e.g. 0.025stake; empty: what the node asks for
//	gasAdjustment            1.5      gas limit = gas of the rehearsal times this, 1 to 10
//	powerReduction           1000000  tokens for one unit of voting power
//	commissionRate           0.1      of a validator that is created: share of the rewards, 0 to 1
//	commissionMaxRate        0.2
//	commissionMaxChangeRate  0.01
//	minSelfDelegation        1        of a validator that is created, in tokens
//	txTimeoutBlocks          20       a transaction may enter this many blocks, 2 to 10000
//	haltAfter                1m       a wait ends after this long without a block, 1s to 24h
package cosmos
