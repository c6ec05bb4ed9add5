// Package render writes the configuration of a cluster's components: what
// each needs in files, and the arguments of its command. It is pure apart from
// WriteAll: the same input gives the same bytes.
package render

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Addresses inside a cluster. They are the same in every cluster: each has a
// network namespace of its own.
const (
	ServiceCIDR = "10.96.0.0/16"
	// ServiceIP is the API server's, the first of the range.
	ServiceIP = "10.96.0.1"
	DNSIP     = "10.96.0.10"
	PodCIDR   = "10.244.0.0/16"
	// NodePodCIDR is the only node's part of PodCIDR.
	NodePodCIDR = "10.244.0.0/24"
	NodeIP      = "10.200.0.1"
	Domain      = "cluster.local"
	// InnerPort is the API server's inside a full cluster's namespaces.
	InnerPort = 6443
)

type object = map[string]any

// Files are file contents by path.
type Files map[string][]byte

// WriteAll writes the files, making folders as needed; they may hold keys and
// are for the owner only.
func (f Files) WriteAll() error {
	for path, content := range f {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
			continue
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read configuration: %w", err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}

// Kubeconfig of one user, with everything inside so that it may be copied.
func Kubeconfig(cluster, server, pkiDir, user string) ([]byte, error) {
	enc := map[string]string{}
	for _, f := range []string{"ca.crt", user + ".crt", user + ".key"} {
		raw, err := os.ReadFile(filepath.Join(pkiDir, f))
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		enc[f] = base64.StdEncoding.EncodeToString(raw)
	}
	return marshal(object{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []object{{"name": cluster, "cluster": object{
			"server": server, "certificate-authority-data": enc["ca.crt"],
		}}},
		"users": []object{{"name": user, "user": object{
			"client-certificate-data": enc[user+".crt"], "client-key-data": enc[user+".key"],
		}}},
		"contexts":        []object{{"name": cluster, "context": object{"cluster": cluster, "user": user}}},
		"current-context": cluster,
	})
}

// AuditPolicy records every request once it is answered, at level Metadata
// (who, what, when, result; no bodies, hence no Secret), except health checks.
func AuditPolicy() ([]byte, error) {
	return marshal(object{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []object{
			{"level": "None", "nonResourceURLs": []string{"/healthz*", "/livez*", "/readyz*"}},
			{"level": "Metadata"},
		},
	})
}

// AdmissionConfig turns Pod Security on: namespaces choose their level by
// label, the default is privileged, and kube-system is exempt.
func AdmissionConfig() ([]byte, error) {
	return marshal(object{
		"apiVersion": "apiserver.config.k8s.io/v1",
		"kind":       "AdmissionConfiguration",
		"plugins": []object{{"name": "PodSecurity", "configuration": object{
			"apiVersion": "pod-security.admission.config.k8s.io/v1",
			"kind":       "PodSecurityConfiguration",
			"defaults": object{
				"enforce": "privileged", "enforce-version": "latest",
				"audit": "privileged", "audit-version": "latest",
				"warn": "privileged", "warn-version": "latest",
			},
			"exemptions": object{
				"usernames": []string{}, "runtimeClasses": []string{},
				"namespaces": []string{"kube-system"},
			},
		}}},
	})
}

// shortHash is a name for a longer one.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

func marshal(v any) ([]byte, error) {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("render configuration: %w", err)
	}
	return raw, nil
}
