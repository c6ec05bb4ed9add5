// Package cluster brings embedded Kubernetes clusters up and down.
//
// A cluster is held by one process, the daemon (Daemon), which everything else
// of the cluster dies with: components are its children or live in a pid
// namespace whose first process is. While "up" works, the daemon in turn lives
// only as long as "up" does, by a pipe between the two, so an interrupted or
// killed "up" leaves nothing either.
//
// It guarantees that Down leaves no process, mount, interface, rule, control
// group or folder of the cluster, whatever state it was in. It does not
// guarantee that data survives a crash of the machine: etcd doesn't sync.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/gobuild"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// Options choose a cluster and how it is to be.
type Options struct {
	// Name of the cluster and of its node.
	Name string
	// State folder; empty means CacheDir/clusters/Name.
	State string
	// CacheDir holds built programs and, by default, state folders.
	CacheDir string
	// Source is the folder of the module test/cluster; empty means to look
	// for it (see FindSource).
	Source string
	Mode   state.Mode
	// Port of the API server on 127.0.0.1; 0 means the one it had before, or
	// any free one.
	Port int
	// CgroupVersion is 1 or 2; 0 means what the machine has.
	CgroupVersion int
	// ProxyMode is kube-proxy's: nftables or iptables.
	ProxyMode string
	// LogLines is how many lines of each component's log a failed Up quotes.
	LogLines int
	// Log gets one line per thing done.
	Log func(format string, args ...any)
}

// validName is that of a node: a DNS label. 40 characters leave room for what
// is built from it (control groups, pods of the node).
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

// ErrBadOption is returned for options that can't be.
var ErrBadOption = errors.New("bad option")

// Cluster is one cluster, running or not.
type Cluster struct {
	opts Options
	dir  state.Dir
}

// New checks the options; it changes nothing.
func New(o Options) (*Cluster, error) {
	if !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("%w: name %q: use up to 40 lower-case letters, digits and dashes", ErrBadOption, o.Name)
	}
	if o.Port < 0 || o.Port > 65535 {
		return nil, fmt.Errorf("%w: port %d: use 1 to 65535, or 0 for any free one", ErrBadOption, o.Port)
	}
	if o.CgroupVersion < 0 || o.CgroupVersion > 2 {
		return nil, fmt.Errorf("%w: control group version %d: use 1, 2 or auto", ErrBadOption, o.CgroupVersion)
	}
	if o.ProxyMode != "nftables" && o.ProxyMode != "iptables" {
		return nil, fmt.Errorf("%w: proxy mode %q: use nftables or iptables", ErrBadOption, o.ProxyMode)
	}
	if o.State == "" {
		o.State = filepath.Join(o.CacheDir, "clusters", o.Name)
	}
	abs, err := filepath.Abs(o.State)
	if err != nil {
		return nil, fmt.Errorf("resolve state folder: %w", err)
	}
	return &Cluster{opts: o, dir: state.Dir(abs)}, nil
}

// DefaultCacheDir is rollcall's part of the user's cache folder.
func DefaultCacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w", err)
	}
	return filepath.Join(base, "rollcall"), nil
}

// Dir is the cluster's state folder.
func (c *Cluster) Dir() state.Dir { return c.dir }

// builder of the programs the cluster runs.
func (c *Cluster) builder() gobuild.Builder {
	return gobuild.Builder{Dir: filepath.Join(c.opts.CacheDir, "bin"), Log: c.opts.Log}
}

// ErrNoSource is returned when the module's folder can't be found.
var ErrNoSource = errors.New("sources of the embedded cluster not found: run from within the checkout, or set --source or ROLLCALL_CLUSTER_SOURCE to its folder test/cluster")

// marker is a file by which the module's folder is known.
const marker = "cmd/kube/go.mod"

// FindSource looks for the module's folder: upwards from the working folder,
// then upwards from this program's file.
func FindSource() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, dir := range starts {
		for {
			for _, sub := range []string{".", filepath.Join("test", "cluster")} {
				candidate := filepath.Join(dir, sub)
				if _, err := os.Stat(filepath.Join(candidate, marker)); err == nil {
					return candidate, nil
				}
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", ErrNoSource
}

// source is the module's folder.
func (c *Cluster) source() (string, error) {
	if c.opts.Source == "" {
		return FindSource()
	}
	if _, err := os.Stat(filepath.Join(c.opts.Source, marker)); err != nil {
		return "", fmt.Errorf("look into %s: %w", c.opts.Source, ErrNoSource)
	}
	return c.opts.Source, nil
}
