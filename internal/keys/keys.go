// Package keys reads a validator's key material and keeps it from showing.
//
// It guarantees that every type prints as "[redacted]" through fmt, slog and
// encoding/json, and that an error never quotes what it failed to read. It
// does not protect memory from a debugger, nor wipe it.
package keys

import (
	"crypto/ed25519"
	"log/slog"
)

// Secret is sensitive text or bytes.
type Secret []byte

const redacted = "[redacted]"

// String, GoString, MarshalJSON, MarshalText and LogValue hide the value.
func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }

// Validator is the key material of one validator.
type Validator struct {
	Ordinal int
	// Consensus signs blocks; only its public half ever leaves this process.
	Consensus ed25519.PublicKey
	// Operator pays and owns the stake: BIP39 words or a hex private key; what it
	// means is the adapter's business.
	Operator Secret
	// Source names where the keys came from, e.g. "Secret default/validator-4-keys".
	Source string
}
