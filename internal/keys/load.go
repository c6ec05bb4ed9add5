package keys

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cosmos/go-bip39"

	"github.com/rollcall-dev/rollcall/internal/fault"
)

const (
	typePublic  = "tendermint/PubKeyEd25519"
	typePrivate = "tendermint/PrivKeyEd25519"

	addressLen = 20

	// Far above what the entries need (a key file has some 350 bytes).
	maxEntry = 64 << 10
)

// Load reads a validator's keys from a Secret's data: consensusEntry is a
// CometBFT key file (priv_validator_key.json), operatorEntry a BIP39 mnemonic or
// a secp256k1 private key in hex. source names the Secret in errors. Every
// problem is reported at once, as one fault.Config error.
func Load(secretData map[string][]byte, source string, ordinal int, consensusEntry, operatorEntry string) (Validator, error) {
	v := Validator{Ordinal: ordinal, Source: source}
	var problems []string
	read := func(entry string, parse func([]byte) error) {
		content, ok := secretData[entry]
		var err error
		switch {
		case !ok:
			err = errors.New("missing")
		case len(bytes.TrimSpace(content)) == 0:
			err = errors.New("empty")
		case len(content) > maxEntry:
			err = fmt.Errorf("longer than %d bytes", maxEntry)
		default:
			err = parse(content)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("entry %s: %s", entry, err))
		}
	}
	read(consensusEntry, func(b []byte) (err error) {
		v.Consensus, err = ParseConsensus(b)
		return err
	})
	read(operatorEntry, func(b []byte) (err error) {
		v.Operator, err = ParseOperator(b)
		return err
	})
	if problems != nil {
		return Validator{}, fault.New(fault.Config, "load keys of validator %d: %s %s", ordinal, source, strings.Join(problems, "; ")).
			Do("put the validator's own %s and %s there", consensusEntry, operatorEntry)
	}
	return v, nil
}

// Public reads only the consensus key's public half of a Secret's data.
func Public(secretData map[string][]byte, source, consensusEntry string) (ed25519.PublicKey, error) {
	content, ok := secretData[consensusEntry]
	if !ok {
		return nil, fault.New(fault.Config, "%s entry %s: missing", source, consensusEntry)
	}
	pub, err := ParseConsensus(content)
	if err != nil {
		return nil, fault.New(fault.Config, "%s entry %s: %w", source, consensusEntry, err)
	}
	return pub, nil
}

// ParseConsensus reads a priv_validator_key.json and returns its public half,
// after it has checked that public half, private half and address belong
// together: a node would sign with the private one.
func ParseConsensus(content []byte) (ed25519.PublicKey, error) {
	const not = "not a CometBFT key file: "
	type key struct {
		Type  string `json:"type"`
		Value []byte `json:"value"`
	}
	var file struct {
		Address string `json:"address"`
		Public  key    `json:"pub_key"`
		Private key    `json:"priv_key"`
	}
	// The decoder's error may quote what it read.
	if json.Unmarshal(content, &file) != nil {
		return nil, errors.New(not + "it isn't JSON of that form")
	}
	defer clear(file.Private.Value)
	switch {
	case file.Public.Type != typePublic:
		return nil, errors.New(not + "pub_key.type isn't " + typePublic)
	case file.Private.Type != typePrivate:
		return nil, errors.New(not + "priv_key.type isn't " + typePrivate)
	case len(file.Public.Value) != ed25519.PublicKeySize:
		return nil, fmt.Errorf(not+"pub_key.value has %d bytes instead of %d", len(file.Public.Value), ed25519.PublicKeySize)
	case len(file.Private.Value) != ed25519.PrivateKeySize:
		return nil, fmt.Errorf(not+"priv_key.value has %d bytes instead of %d", len(file.Private.Value), ed25519.PrivateKeySize)
	}
	private := ed25519.NewKeyFromSeed(file.Private.Value[:ed25519.SeedSize])
	defer clear(private)
	if !bytes.Equal(private, file.Private.Value) || !bytes.Equal(private[ed25519.SeedSize:], file.Public.Value) {
		return nil, errors.New(not + "priv_key and pub_key don't belong together")
	}
	if !strings.EqualFold(file.Address, Address(file.Public.Value)) {
		return nil, errors.New(not + "address and pub_key don't belong together")
	}
	return file.Public.Value, nil
}

// Address returns the consensus address of a public key as CometBFT shows it:
// the first 20 bytes of its SHA-256, in uppercase hex.
func Address(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	return strings.ToUpper(hex.EncodeToString(sum[:addressLen]))
}

// ParseOperator reads a BIP39 mnemonic of 12, 15, 18, 21 or 24 English words, or
// a private key of 64 hex digits (0x before it is fine), and returns it in the
// form that Validator.Operator has. It checks a mnemonic's checksum; whether a
// number is a valid key of the curve is left to who uses it.
func ParseOperator(content []byte) (Secret, error) {
	words := strings.Fields(strings.ToLower(string(content)))
	switch len(words) {
	case 1:
		digits := strings.TrimPrefix(words[0], "0x")
		if raw, err := hex.DecodeString(digits); err != nil || len(raw) != 32 {
			return nil, errors.New("not an operator key: one word, but not 64 hex digits; give a mnemonic or a private key in hex")
		}
		return Secret(digits), nil
	case 12, 15, 18, 21, 24:
	default:
		return nil, fmt.Errorf("not an operator key: %d words; a mnemonic has 12, 15, 18, 21 or 24", len(words))
	}
	for i, w := range words {
		if _, ok := bip39.ReverseWordMap[w]; !ok {
			return nil, fmt.Errorf("not an operator key: word %d isn't in the BIP39 English word list", i+1)
		}
	}
	phrase := strings.Join(words, " ")
	if _, err := bip39.MnemonicToByteArray(phrase); err != nil {
		return nil, errors.New("not an operator key: the mnemonic's checksum is wrong; a word is wrong or two are swapped")
	}
	return Secret(phrase), nil
}
