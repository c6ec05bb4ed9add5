package cosmos

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/decred/dcrd/bech32"
	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"golang.org/x/crypto/ripemd160" //nolint:staticcheck // the chain's addresses are made with it

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
)

// operator is who signs for a validator.
type operator struct {
	key       *secp256k1.PrivateKey
	pub       []byte // compressed
	account   string
	valoper   string
	valcons   string
	consensus ed25519.PublicKey
	address   string // consensus address, uppercase hex
}

// Format keeps the private key out of anything that is printed.
func (operator) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[operator]") }

func (s settings) operator(k keys.Validator) (operator, error) {
	if len(k.Consensus) != ed25519.PublicKeySize {
		return operator{}, fault.New(fault.Config, "%s: no consensus key", k.Source)
	}
	key, err := privateKey(k.Operator, s.coinType)
	if err != nil {
		return operator{}, fault.New(fault.Config, "%s: operator key: %w", k.Source, err)
	}
	op := operator{key: key, pub: key.PubKey().SerializeCompressed(), consensus: k.Consensus, address: keys.Address(k.Consensus)}
	raw := accountBytes(op.pub)
	consensus, err := hex.DecodeString(op.address)
	if err != nil {
		return operator{}, fmt.Errorf("decode consensus address: %w", err)
	}
	for _, a := range []struct {
		into   *string
		suffix string
		raw    []byte
	}{{&op.account, "", raw}, {&op.valoper, "valoper", raw}, {&op.valcons, "valcons", consensus}} {
		if *a.into, err = bech32.EncodeFromBase256(s.prefix+a.suffix, a.raw); err != nil {
			return operator{}, fault.New(fault.Config, "write address with prefix %q: %w", s.prefix, err)
		}
	}
	return op, nil
}

// accountBytes is the address of a secp256k1 key: RIPEMD-160 of SHA-256 of its
// compressed form.
func accountBytes(pub []byte) []byte {
	sum := sha256.Sum256(pub)
	h := ripemd160.New()
	_, _ = h.Write(sum[:]) // a hash's Write doesn't fail
	return h.Sum(nil)
}

// privateKey makes the key from its two forms: 64 hex digits, or BIP39 words.
func privateKey(secret keys.Secret, coinType uint32) (*secp256k1.PrivateKey, error) {
	normal, err := keys.ParseOperator(secret)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(normal), " ") {
		raw, err := hex.DecodeString(string(normal))
		if err != nil {
			return nil, errors.New("not hex")
		}
		return scalar(raw)
	}
	const hard = 1 << 31
	return derive(normal, []uint32{44 | hard, coinType | hard, hard, 0, 0})
}

// scalar makes a private key of 32 bytes, which must be from 1 to the curve's
// order less one.
func scalar(raw []byte) (*secp256k1.PrivateKey, error) {
	var s secp256k1.ModNScalar
	if overflow := s.SetByteSlice(raw); overflow || s.IsZero() {
		return nil, errors.New("not a private key of secp256k1: out of range")
	}
	return secp256k1.NewPrivateKey(&s), nil
}

// derive follows BIP39 (seed without a passphrase) and BIP32 (path).
func derive(mnemonic keys.Secret, path []uint32) (*secp256k1.PrivateKey, error) {
	const rounds, seedLen = 2048, 64
	seed, err := pbkdf2.Key(sha512.New, string(mnemonic), []byte("mnemonic"), rounds, seedLen)
	if err != nil {
		return nil, fmt.Errorf("derive seed: %w", err)
	}
	mac := func(key, data []byte) []byte {
		h := hmac.New(sha512.New, key)
		_, _ = h.Write(data) // a hash's Write doesn't fail
		return h.Sum(nil)
	}
	node := mac([]byte("Bitcoin seed"), seed)
	key, err := scalar(node[:32])
	if err != nil {
		return nil, err
	}
	for _, index := range path {
		var data []byte
		if index >= 1<<31 {
			data = append([]byte{0}, key.Serialize()...)
		} else {
			data = key.PubKey().SerializeCompressed()
		}
		node = mac(node[32:], binary.BigEndian.AppendUint32(data, index))
		var sum secp256k1.ModNScalar
		if sum.SetByteSlice(node[:32]) {
			return nil, errors.New("this path has no key (BIP32: one in 2^127 hasn't)")
		}
		sum.Add(&key.Key)
		if sum.IsZero() {
			return nil, errors.New("this path has no key (BIP32: one in 2^127 hasn't)")
		}
		key = secp256k1.NewPrivateKey(&sum)
	}
	return key, nil
}

// sign returns R and S, 64 bytes. The nonce is RFC 6979's and S is the low one,
// as the chain demands.
func (o operator) sign(doc []byte) []byte {
	sum := sha256.Sum256(doc)
	return ecdsa.SignCompact(o.key, sum[:], true)[1:]
}
