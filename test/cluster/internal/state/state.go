// Package state is the layout of a cluster's state folder and the two records
// in it: what the cluster is (Spec) and what runs now (Run).
//
// Everything a cluster writes on the machine is inside this folder, so that
// removing the folder removes the cluster. Control groups and processes are
// the only things outside; package cluster removes those.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/proc"
)

// Mode tells what a cluster consists of.
type Mode string

const (
	// Full is a cluster of one node that runs pods.
	Full Mode = "full"
	// ControlPlane is etcd, API server, controller manager and scheduler; no
	// pod ever runs.
	ControlPlane Mode = "control-plane"
)

// Dir is a state folder.
type Dir string

// Spec is what a cluster is. It is kept across restarts.
type Spec struct {
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	// Port of the API server on 127.0.0.1 of the machine.
	Port int `json:"port"`
	// Kube is the multi-call binary that the cluster runs.
	Kube string `json:"kube"`
	// CgroupVersion is 1 or 2; full clusters only.
	CgroupVersion int `json:"cgroupVersion,omitempty"`
	// ProxyMode is kube-proxy's: nftables or iptables.
	ProxyMode string `json:"proxyMode,omitempty"`
	// Images by role (pause, coredns): the reference in the cluster.
	Images map[string]string `json:"images,omitempty"`
	// Programs of the machine by name (containerd, runc, ...): their paths.
	Programs map[string]string `json:"programs,omitempty"`
}

// Run is what runs now.
type Run struct {
	// Daemon is the process that holds everything else.
	Daemon proc.Identity `json:"daemon"`
	// Init is the first process of the sandbox; full clusters only.
	Init proc.Identity `json:"init,omitzero"`
}

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{string(d)}, parts...)...)
}

// Bin holds the links named like the components, kubectl among them.
func (d Dir) Bin() string { return d.path("bin") }

// PKI holds certificates and keys.
func (d Dir) PKI() string { return d.path("pki") }

// Config holds the components' configuration files.
func (d Dir) Config() string { return d.path("config") }

// Logs holds one file per component.
func (d Dir) Logs() string { return d.path("log") }

// Log is the log file of a component.
func (d Dir) Log(component string) string { return d.path("log", component+".log") }

// Data holds what components keep: etcd, containerd, kubelet, volumes.
func (d Dir) Data(name string) string { return d.path("data", name) }

// AuditLog is the API server's audit log, one JSON object per line.
func (d Dir) AuditLog() string { return d.path("audit.log") }

// Kubeconfig is the administrator's, for use on the machine.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// ControlSocket is the supervisor's.
func (d Dir) ControlSocket() string { return d.path("control.sock") }

func (d Dir) specFile() string { return d.path("cluster.json") }
func (d Dir) runFile() string  { return d.path("run.json") }

// LockFile serializes up and down on this folder; it is beside the folder so
// that it can outlive it.
func (d Dir) LockFile() string { return string(d) + ".lock" }

// Spec reads the cluster's description; fs.ErrNotExist if there is none.
func (d Dir) Spec() (Spec, error) {
	var s Spec
	if err := read(d.specFile(), &s); err != nil {
		return Spec{}, fmt.Errorf("read cluster description: %w", err)
	}
	return s, nil
}

// WriteSpec replaces the cluster's description.
func (d Dir) WriteSpec(s Spec) error {
	if err := write(d.specFile(), s); err != nil {
		return fmt.Errorf("write cluster description: %w", err)
	}
	return nil
}

// Run reads what runs; the zero Run if nothing does.
func (d Dir) Run() (Run, error) {
	var r Run
	if err := read(d.runFile(), &r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Run{}, fmt.Errorf("read run record: %w", err)
	}
	return r, nil
}

// WriteRun replaces the run record.
func (d Dir) WriteRun(r Run) error {
	if err := write(d.runFile(), r); err != nil {
		return fmt.Errorf("write run record: %w", err)
	}
	return nil
}

// RemoveRun removes the run record and the control socket.
func (d Dir) RemoveRun() error {
	for _, f := range []string{d.runFile(), d.ControlSocket()} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove run record: %w", err)
		}
	}
	return nil
}

// ErrForeign is returned instead of removing a folder that isn't a cluster's.
var ErrForeign = errors.New("not a cluster's state folder (it has no cluster.json): remove it yourself if you are sure")

// Remove deletes the folder, if it is a state folder. A folder that isn't
// there is no error.
func (d Dir) Remove() error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into state folder: %w", err)
	}
	if len(entries) > 0 {
		if _, err := os.Stat(d.specFile()); err != nil {
			return fmt.Errorf("remove %s: %w", d, ErrForeign)
		}
	}
	// The description goes last, so that a removal that was interrupted can be
	// repeated.
	for _, e := range entries {
		if p := d.path(e.Name()); p != d.specFile() {
			if err := os.RemoveAll(p); err != nil {
				return fmt.Errorf("remove state: %w", err)
			}
		}
	}
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("remove state folder: %w", err)
	}
	return nil
}

func read(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	return nil
}

// write replaces a file in one step.
func write(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
