package keys_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/internal/fault"
	"github.com/rollcall-dev/rollcall/internal/keys"
)

const (
	source = "Secret ns/validator-4-keys"
	entryC = "priv_validator_key.json"
	entryO = "operator.mnemonic"
)

var (
	words12 = strings.Repeat("abandon ", 11) + "about"
	words24 = strings.Repeat("abandon ", 23) + "art"
	hexKey  = strings.Repeat("4f", 32)
)

// keyFile is a CometBFT key file; change alters it.
func keyFile(seed byte, change func(map[string]any)) []byte {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	public := private.Public().(ed25519.PublicKey)
	file := map[string]any{
		"address":  keys.Address(public),
		"pub_key":  map[string]any{"type": "tendermint/PubKeyEd25519", "value": base64.StdEncoding.EncodeToString(public)},
		"priv_key": map[string]any{"type": "tendermint/PrivKeyEd25519", "value": base64.StdEncoding.EncodeToString(private)},
	}
	if change != nil {
		change(file)
	}
	raw, _ := json.Marshal(file)
	return raw
}

func secretOf(seed byte) string {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return base64.StdEncoding.EncodeToString(private)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	for name, operator := range map[string]string{
		"12 words": words12, "24 words": words24, "hex": hexKey,
		"words in capitals with odd spaces":  "  " + strings.ToUpper(strings.ReplaceAll(words24, " ", "\t\n ")) + "\n",
		"hex with a prefix and capital form": "0x" + strings.ToUpper(hexKey) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := keys.Load(map[string][]byte{entryC: keyFile(1, nil), entryO: []byte(operator)}, source, 4, entryC, entryO)
			require.NoError(t, err)
			require.Equal(t, 4, v.Ordinal)
			require.Equal(t, source, v.Source)
			require.Len(t, v.Consensus, ed25519.PublicKeySize)
			require.Contains(t, []string{words12, words24, hexKey}, string(v.Operator))
		})
	}
}

func TestLoadSaysWhatIsWrongWithoutQuotingIt(t *testing.T) {
	t.Parallel()
	of := func(key string) func(map[string]any) map[string]any {
		return func(file map[string]any) map[string]any { return file[key].(map[string]any) }
	}
	public, private := of("pub_key"), of("priv_key")
	for name, c := range map[string]struct {
		consensus, operator []byte
		want                string
	}{
		"nothing there":             {nil, nil, "entry priv_validator_key.json: missing; entry operator.mnemonic: missing"},
		"empty entries":             {[]byte{}, []byte(" \n"), "entry priv_validator_key.json: empty; entry operator.mnemonic: empty"},
		"a huge entry":              {bytes.Repeat([]byte("x"), 1<<17), []byte(words12), "longer than"},
		"no JSON":                   {[]byte("hunter2"), []byte(words12), "not a CometBFT key file: it isn't JSON"},
		"JSON of another form":      {[]byte(`["hunter2"]`), []byte(words12), "not a CometBFT key file: it isn't JSON"},
		"a node key":                {[]byte(`{"priv_key":{"type":"tendermint/PrivKeyEd25519","value":"aHVudGVyMg=="}}`), []byte(words12), "pub_key.type"},
		"no base64":                 {keyFile(2, func(f map[string]any) { private(f)["value"] = "hunter2!" }), []byte(words12), "it isn't JSON of that form"},
		"another type of key":       {keyFile(2, func(f map[string]any) { private(f)["type"] = "tendermint/PrivKeySecp256k1" }), []byte(words12), "priv_key.type isn't"},
		"a short private key":       {keyFile(2, func(f map[string]any) { private(f)["value"] = "aHVudGVyMg==" }), []byte(words12), "priv_key.value has 7 bytes"},
		"a short public key":        {keyFile(2, func(f map[string]any) { public(f)["value"] = "aHVudGVyMg==" }), []byte(words12), "pub_key.value has 7 bytes"},
		"halves of two keys":        {keyFile(2, func(f map[string]any) { private(f)["value"] = secretOf(3) }), []byte(words12), "priv_key and pub_key don't belong together"},
		"an address of another key": {keyFile(2, func(f map[string]any) { f["address"] = strings.Repeat("0", 40) }), []byte(words12), "address and pub_key don't belong together"},
		"eleven words":              {keyFile(2, nil), []byte(strings.TrimSuffix(words12, " about")), "11 words"},
		"a word that isn't one":     {keyFile(2, nil), []byte(strings.Replace(words12, "about", "hunter2", 1)), "word 12 isn't in the BIP39"},
		"a wrong checksum":          {keyFile(2, nil), []byte(strings.Replace(words12, "about", "abandon", 1)), "checksum is wrong"},
		"swapped words":             {keyFile(2, nil), []byte("about " + strings.TrimSuffix(words12, " about")), "checksum is wrong"},
		"short hex":                 {keyFile(2, nil), []byte(hexKey[2:]), "one word, but not 64 hex digits"},
		"one word":                  {keyFile(2, nil), []byte("hunter2"), "one word, but not 64 hex digits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := map[string][]byte{}
			if c.consensus != nil {
				data[entryC] = c.consensus
			}
			if c.operator != nil {
				data[entryO] = c.operator
			}
			v, err := keys.Load(data, source, 4, entryC, entryO)
			require.Zero(t, v)
			require.True(t, fault.Is(err, fault.Config), "%v", err)
			require.ErrorContains(t, err, source+" entry ")
			require.ErrorContains(t, err, c.want)
			for _, secret := range []string{"hunter2", "aHVudGVy", "abandon", "about", hexKey[:8], secretOf(2), secretOf(3)} {
				require.NotContains(t, err.Error(), secret)
			}
		})
	}
}

func TestPublicNeedsNoOperatorKey(t *testing.T) {
	t.Parallel()
	pub, err := keys.Public(map[string][]byte{entryC: keyFile(1, nil)}, source, entryC)
	require.NoError(t, err)
	require.Len(t, pub, ed25519.PublicKeySize)
	_, err = keys.Public(nil, source, entryC)
	require.True(t, fault.Is(err, fault.Config))
	_, err = keys.Public(map[string][]byte{entryC: []byte("hunter2")}, source, entryC)
	require.True(t, fault.Is(err, fault.Config))
	require.NotContains(t, err.Error(), "hunter2")
}

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	const value = "hunter2hunter2"
	v := keys.Validator{Ordinal: 4, Operator: keys.Secret(value), Source: source}
	outputs := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%U"} {
		outputs["secret "+verb] = fmt.Sprintf(verb, v.Operator)
		outputs["validator "+verb] = fmt.Sprintf(verb, v)
		outputs["pointer "+verb] = fmt.Sprintf(verb, &v)
		outputs["slice "+verb] = fmt.Sprintf(verb, []keys.Validator{v})
		outputs["error "+verb] = fmt.Errorf("wrap "+verb, v).Error() //nolint:err113 // printing is what is tested
	}
	for name, encode := range map[string]func(any) ([]byte, error){"json": json.Marshal, "xml": xml.Marshal} {
		for what, x := range map[string]any{"secret": v.Operator, "validator": v} {
			raw, err := encode(x)
			require.NoError(t, err)
			outputs[name+" "+what] = string(raw)
		}
	}
	var log bytes.Buffer
	for _, logger := range []*slog.Logger{slog.New(slog.NewJSONHandler(&log, nil)), slog.New(slog.NewTextHandler(&log, nil))} {
		logger.Info("loaded", "secret", v.Operator, "validator", v, "pointer", &v, "map", map[string]any{"k": v.Operator})
	}
	outputs["slog"] = log.String()

	for name, out := range outputs {
		for _, form := range []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), "104 117 110", base64.StdEncoding.EncodeToString([]byte(value)), "U+0068"} {
			require.NotContains(t, out, form, name)
		}
	}
	require.Equal(t, "[redacted]", fmt.Sprint(v.Operator))
	require.Contains(t, outputs["json validator"], `"Operator":"[redacted]"`)
}

func FuzzParseConsensus(f *testing.F) {
	f.Add(keyFile(1, nil))
	f.Add([]byte(`{"address":"","pub_key":{},"priv_key":null}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		pub, err := keys.ParseConsensus(raw)
		if err == nil && len(pub) != ed25519.PublicKeySize {
			t.Fatalf("a key of %d bytes", len(pub))
		}
	})
}

func FuzzParseOperator(f *testing.F) {
	f.Add([]byte(words12))
	f.Add([]byte(words24))
	f.Add([]byte(hexKey))
	f.Add([]byte("zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo zoo wrong"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		secret, err := keys.ParseOperator(raw)
		if err != nil {
			return
		}
		// The normal form is its own normal form.
		again, err := keys.ParseOperator(secret)
		if err != nil || !bytes.Equal(again, secret) {
			t.Fatal("not stable")
		}
	})
}
