// Package keys reads a validator's key material and keeps it from showing.
//
// It guarantees that a Secret prints as "[redacted]" through fmt (every verb),
// slog, encoding/json, and everything that asks for text, also as a field of
// another type, and that an error never quotes what it failed to read. A
// consensus key's private half is checked and dropped: only the public half is
// kept.
//
// It does not protect memory from a debugger, nor wipe it, and Go offers no way
// to hide a Secret in an unexported field of a struct that is printed by fmt.
package keys

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"log/slog"
)

// Secret is sensitive text or bytes.
type Secret []byte

const redacted = "[redacted]"

// The methods below are all the ways by which printing and encoding ask a value
// for its text.

// String hides the value.
func (Secret) String() string { return redacted }

// GoString hides the value.
func (Secret) GoString() string { return redacted }

// Format hides the value from every verb, %d and %x included.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON hides the value.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText hides the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue hides the value.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// Validator is the key material of one validator.
type Validator struct {
	Ordinal int
	// Consensus signs blocks; only its public half ever leaves this process.
	Consensus ed25519.PublicKey
	// Operator pays and owns the stake: BIP39 words in lower case with one space
	// between them, or a private key of 64 hex digits in lower case. What it
	// means is the adapter's business.
	Operator Secret
	// Source names where the keys came from, e.g. "Secret default/validator-4-keys".
	Source string
}
