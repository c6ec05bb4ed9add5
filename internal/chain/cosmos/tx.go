package cosmos

import (
	"math/big"

	"github.com/rollcall-dev/rollcall/internal/chain/comet"
)

const (
	signModeDirect = 1

	urlCreateValidator = "/cosmos.staking.v1beta1.MsgCreateValidator"
	urlDelegate        = "/cosmos.staking.v1beta1.MsgDelegate"
	urlUndelegate      = "/cosmos.staking.v1beta1.MsgUndelegate"
	urlUnjail          = "/cosmos.slashing.v1beta1.MsgUnjail"
	urlEd25519         = "/cosmos.crypto.ed25519.PubKey"
	urlSecp256k1       = "/cosmos.crypto.secp256k1.PubKey"
)

func (s settings) msgCreateValidator(op operator, moniker string, amount *big.Int) message {
	rates := message(nil).str(1, dec18(s.commission.rate)).str(2, dec18(s.commission.maxRate)).str(3, dec18(s.commission.maxChange))
	m := message(nil).
		sub(1, message(nil).str(1, moniker)).
		sub(2, rates).
		str(3, s.minSelf.String()).
		// Deprecated since SDK 0.50, demanded before.
		str(4, op.account).
		str(5, op.valoper).
		sub(6, packAny(urlEd25519, message(nil).bytes(1, op.consensus))).
		sub(7, coin(s.denom, amount))
	return packAny(urlCreateValidator, m)
}

func (s settings) msgDelegate(op operator, amount *big.Int) message {
	return packAny(urlDelegate, message(nil).str(1, op.account).str(2, op.valoper).sub(3, coin(s.denom, amount)))
}

func (s settings) msgUndelegate(op operator, amount *big.Int) message {
	return packAny(urlUndelegate, message(nil).str(1, op.account).str(2, op.valoper).sub(3, coin(s.denom, amount)))
}

func msgUnjail(op operator) message {
	return packAny(urlUnjail, message(nil).str(1, op.valoper))
}

// unsigned is a transaction before it is signed.
type unsigned struct {
	chainID  string
	msgs     []message
	memo     string
	timeout  int64 // last height that may include it
	account  uint64
	sequence uint64
	gas      uint64
	fee      *big.Int // nil or zero: none
	feeDenom string
}

// signed is a transaction that is ready to be sent.
type signed struct {
	raw      []byte
	hash     string
	signer   string // account address
	sequence uint64
	timeout  int64
}

// sign encodes and signs in SIGN_MODE_DIRECT (cosmos.tx.v1beta1: TxRaw, TxBody,
// AuthInfo, SignDoc).
func (u unsigned) sign(op operator) signed {
	var body message
	for _, m := range u.msgs {
		body = body.sub(1, m)
	}
	body = body.str(2, u.memo).uint(3, uint64(u.timeout))

	mode := message(nil).sub(1, message(nil).uint(1, signModeDirect))
	signer := message(nil).
		sub(1, packAny(urlSecp256k1, message(nil).bytes(1, op.pub))).
		sub(2, mode).
		uint(3, u.sequence)
	var fee message
	if u.fee != nil && u.fee.Sign() > 0 {
		fee = fee.sub(1, coin(u.feeDenom, u.fee))
	}
	fee = fee.uint(2, u.gas)
	auth := message(nil).sub(1, signer).sub(2, fee)

	doc := message(nil).bytes(1, body).bytes(2, auth).str(3, u.chainID).uint(4, u.account)
	raw := message(nil).bytes(1, body).bytes(2, auth).bytes(3, op.sign(doc))
	return signed{raw: raw, hash: comet.Hash(raw), signer: op.account, sequence: u.sequence, timeout: u.timeout}
}
