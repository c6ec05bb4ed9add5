package network

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// GenesisConfigMap is the ConfigMap with the network's public files:
// genesis.json, persistent_peers (one line), chain_id and network.json.
const GenesisConfigMap = "chain-genesis"

// object is as much of a Secret or ConfigMap as is written here.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Type       string   `json:"type,omitempty"`
	Immutable  bool     `json:"immutable"`
	// Data is text in a ConfigMap and base64 in a Secret.
	Data map[string]string `json:"data"`
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func labels(component string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":      "demo-chain",
		"app.kubernetes.io/component": component,
		"app.kubernetes.io/part-of":   "rollcall",
		"rollcall.dev/network":        "demo",
	}
}

// writeKubernetes makes one file per object: validator-<i>-keys.yaml and
// chain-genesis.yaml. All are immutable, so that applying another network's
// over them is refused by the API server instead of changing keys in place.
func writeKubernetes(opts Options, ids []identity, genesis []byte, summary Summary) error {
	public, err := summary.encode()
	if err != nil {
		return err
	}
	objects := []object{{
		APIVersion: "v1", Kind: "ConfigMap", Immutable: true,
		Metadata: metadata{Name: GenesisConfigMap, Labels: labels("genesis")},
		Data: map[string]string{
			"genesis.json":     string(genesis),
			"persistent_peers": strings.Join(opts.peers(ids), ",") + "\n",
			"chain_id":         opts.ChainID + "\n",
			"network.json":     string(public),
		},
	}}
	for _, id := range ids {
		secret, err := keysSecret(id)
		if err != nil {
			return fmt.Errorf("make Secret of validator %d: %w", id.ordinal, err)
		}
		objects = append(objects, secret)
	}
	for _, o := range objects {
		raw, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", o.Kind, o.Metadata.Name, err)
		}
		if err := os.WriteFile(filepath.Join(opts.Output, o.Metadata.Name+".yaml"), raw, 0o600); err != nil {
			return fmt.Errorf("write %s %s: %w", o.Kind, o.Metadata.Name, err)
		}
	}
	return nil
}

func keysSecret(id identity) (object, error) {
	key, err := id.keyFile()
	if err != nil {
		return object{}, err
	}
	nodeKey, err := id.nodeKeyFile()
	if err != nil {
		return object{}, err
	}
	meta := metadata{
		Name:   nodeName(id.ordinal) + "-keys",
		Labels: labels("validator-keys"),
		Annotations: map[string]string{
			"rollcall.dev/operator-address":  id.valoper(),
			"rollcall.dev/consensus-address": id.consensusAddress(),
			"rollcall.dev/node-id":           id.nodeID(),
		},
	}
	meta.Labels["rollcall.dev/validator-ordinal"] = strconv.Itoa(id.ordinal)
	return object{
		APIVersion: "v1", Kind: "Secret", Type: "Opaque", Immutable: true, Metadata: meta,
		// Not stringData, which server-side apply does not track well.
		Data: map[string]string{
			"priv_validator_key.json": base64.StdEncoding.EncodeToString(key),
			"node_key.json":           base64.StdEncoding.EncodeToString(nodeKey),
			"operator.mnemonic":       base64.StdEncoding.EncodeToString([]byte(id.mnemonic + "\n")),
		},
	}, nil
}
