package cosmos

import (
	"errors"
	"math/big"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// message builds a protobuf message field by field. As proto3 demands, and as
// SIGN_MODE_DIRECT relies on, empty scalars are left out and fields are added in
// the order of their numbers.
type message []byte

func (m message) bytes(n protowire.Number, b []byte) message {
	if len(b) == 0 {
		return m
	}
	return m.sub(n, b)
}

func (m message) str(n protowire.Number, s string) message { return m.bytes(n, []byte(s)) }

// sub adds an embedded message, which is there even when it is empty.
func (m message) sub(n protowire.Number, b message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, n, protowire.BytesType), b)
}

func (m message) uint(n protowire.Number, v uint64) message {
	if v == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), v)
}

func packAny(typeURL string, value message) message {
	return message(nil).str(1, typeURL).bytes(2, value)
}

func coin(denom string, amount *big.Int) message {
	return message(nil).str(1, denom).str(2, amount.String())
}

var errWire = errors.New("malformed protobuf")

// field is one field of a message that was read.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64 // for VarintType
	bytes  []byte // for BytesType
}

// fields hands the fields of a message to visit, in order. Fields of other types
// than varint and bytes are skipped, since nothing read here has any.
func fields(raw []byte, visit func(f field) error) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return errWire
		}
		raw = raw[n:]
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(raw)
		default:
			n = protowire.ConsumeFieldValue(num, typ, raw)
		}
		if n < 0 {
			return errWire
		}
		raw = raw[n:]
		if typ != protowire.VarintType && typ != protowire.BytesType {
			continue
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// is reports whether the field has the number and the type.
func (f field) is(num protowire.Number, typ protowire.Type) bool { return f.num == num && f.typ == typ }

// sub returns the bytes field num of a message, the last one if there are
// several, nil if there is none.
func sub(raw []byte, num protowire.Number) (found []byte, err error) {
	err = fields(raw, func(f field) error {
		if f.is(num, protowire.BytesType) {
			found = f.bytes
			if found == nil {
				found = []byte{}
			}
		}
		return nil
	})
	return found, err
}

// timestamp reads a google.protobuf.Timestamp.
func timestamp(raw []byte) (time.Time, error) {
	var seconds, nanos int64
	err := fields(raw, func(f field) error {
		switch {
		case f.is(1, protowire.VarintType):
			seconds = int64(f.varint)
		case f.is(2, protowire.VarintType):
			nanos = int64(f.varint)
		}
		return nil
	})
	if err == nil && (nanos < 0 || nanos > 999_999_999 || seconds < -62135596800 || seconds > 253402300799) {
		err = errWire
	}
	return time.Unix(seconds, nanos).UTC(), err
}

// number reads a whole number that is written as text.
func number(b []byte) (*big.Int, error) {
	if n, ok := parseInt(string(b)); ok {
		return n, nil
	}
	return nil, errWire
}

// readAmount reads the amount of a Coin.
func readAmount(raw []byte) (amount *big.Int, err error) {
	amount = new(big.Int)
	err = fields(raw, func(f field) (err error) {
		if f.is(2, protowire.BytesType) {
			amount, err = number(f.bytes)
		}
		return err
	})
	return amount, err
}
