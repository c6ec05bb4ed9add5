package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cmtjson "github.com/cometbft/cometbft/libs/json"
	"github.com/cometbft/cometbft/privval"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// runCommand runs the command line in process and returns all it printed.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root, err := newRoot(t.TempDir())
	require.NoError(t, err)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		rel, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		files[rel] = strings.ReplaceAll(string(raw), dir, "DIR")
		return nil
	}))
	return files
}

func TestNetworkForKubernetes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "net")
	start := time.Now()
	printed, err := runCommand(t, "network", "--format", "kubernetes", "--validators", "4", "--accounts", "16",
		"--chain-id", "rollcall-demo-1", "--output", dir)
	require.NoError(t, err)
	require.Less(t, time.Since(start), 20*time.Second, "keys and genesis are made in process")

	files := readTree(t, dir)
	require.Len(t, files, 17)
	addresses := map[string]bool{}
	for name, content := range files {
		if name == "chain-genesis.yaml" {
			continue
		}
		var secret object
		require.NoError(t, yaml.UnmarshalStrict([]byte(content), &secret), name)
		require.Equal(t, secret.Metadata.Name+".yaml", name)
		require.True(t, secret.Immutable)
		require.Equal(t, secret.Metadata.Name, "validator-"+secret.Metadata.Labels["rollcall.dev/validator-ordinal"]+"-keys")
		require.Len(t, secret.Data, 3)

		mnemonic := string(decode(t, secret.Data["operator.mnemonic"]))
		require.Len(t, strings.Fields(mnemonic), 24)
		var key privval.FilePVKey
		require.NoError(t, cmtjson.Unmarshal(decode(t, secret.Data["priv_validator_key.json"]), &key))
		require.Equal(t, key.Address.String(), secret.Metadata.Annotations["rollcall.dev/consensus-address"])
		addresses[key.Address.String()] = true

		genesis := files["chain-genesis.yaml"]
		require.NotContains(t, genesis, strings.TrimSpace(mnemonic))
		require.NotContains(t, printed, strings.TrimSpace(mnemonic))
		require.Contains(t, genesis, secret.Metadata.Annotations["rollcall.dev/operator-address"])
	}
	require.Len(t, addresses, 16, "no two validators share a key")

	var config object
	require.NoError(t, yaml.UnmarshalStrict([]byte(files["chain-genesis.yaml"]), &config))
	require.Equal(t, 4, strings.Count(config.Data["persistent_peers"], "@"))
	require.Contains(t, config.Data["persistent_peers"], "@validator-3.validator:26656")
	var genesis struct {
		ChainID  string `json:"chain_id"`
		AppState struct {
			Genutil struct {
				GenTxs []json.RawMessage `json:"gen_txs"`
			} `json:"genutil"`
			Bank struct {
				Balances []json.RawMessage `json:"balances"`
			} `json:"bank"`
		} `json:"app_state"`
	}
	require.NoError(t, json.Unmarshal([]byte(config.Data["genesis.json"]), &genesis))
	require.Equal(t, "rollcall-demo-1", genesis.ChainID)
	require.Len(t, genesis.AppState.Genutil.GenTxs, 4)
	require.Len(t, genesis.AppState.Bank.Balances, 16)
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	return raw
}

// object is a Secret or ConfigMap as Kubernetes would read it.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Type      string            `json:"type"`
	Immutable bool              `json:"immutable"`
	Data      map[string]string `json:"data"`
}

func TestNetworkSeeds(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"files", "kubernetes"} {
		made := func(seed string) map[string]string {
			dir := filepath.Join(t.TempDir(), "net")
			_, err := runCommand(t, "network", "--format", format, "--accounts", "5", "--seed", seed, "--output", dir)
			require.NoError(t, err)
			return readTree(t, dir)
		}
		require.Equal(t, made("one"), made("one"), "one seed makes one network")
		require.NotEqual(t, made("one"), made("two"), "another seed makes another")
		require.NotEqual(t, made(""), made(""), "without a seed every network is new")
	}
}

func TestNetworkRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args []string
		err  string
	}{
		"a missing output folder":         {[]string{}, "give --output DIR"},
		"fewer accounts than validators":  {[]string{"--output", "x", "--accounts", "3"}, "accounts (3) count the validators (4) too"},
		"no validators":                   {[]string{"--output", "x", "--validators", "0"}, "validators must be at least 1"},
		"a jail time the chain refuses":   {[]string{"--output", "x", "--jail-time", "30s"}, "jail-time must be at least 1m0s"},
		"a stake below one unit of power": {[]string{"--output", "x", "--stake", "1"}, "one unit of voting power"},
		"a stake above the balance":       {[]string{"--output", "x", "--balance", "1000000"}, "balance (1000000) must cover the stake (100000000)"},
		"an unknown format":               {[]string{"--output", "x", "--format", "xml"}, `format must be files or kubernetes, not "xml"`},
		"a gas price that is no amount":   {[]string{"--output", "x", "--min-gas-prices", "?"}, "is not an amount"},
		"a bad address":                   {[]string{"--output", "x", "--address", "localhost"}, `address "localhost" is not an IPv4 address`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := runCommand(t, append([]string{"network"}, tc.args...)...)
			require.ErrorContains(t, err, tc.err)
		})
	}
	t.Run("a folder with content", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "keys"), nil, 0o600))
		_, err := runCommand(t, "network", "--output", dir)
		require.ErrorContains(t, err, "is not empty")
	})
}
