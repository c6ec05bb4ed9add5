//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

// snapshot is what a cluster might leave on the machine.
type snapshot struct {
	mounts, interfaces, rules, cgroups, paths, parameters []string
}

// fixedPaths are those that Kubernetes' programs use wherever they run.
var fixedPaths = []string{
	"/var/lib/kubelet", "/var/lib/cni", "/var/lib/etcd", "/var/log/pods", "/var/log/containers",
	"/usr/libexec/kubernetes", "/tmp/hostpath_pv", "/run/netns", "/run/containerd", "/run/flannel",
	"/usr/sbin/policy-rc.d",
}

// parameters are kernel parameters that Kubernetes' programs set.
var parameters = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "kernel/hostname",
	"net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/bridge/bridge-nf-call-iptables",
	"net/netfilter/nf_conntrack_max",
}

func takeSnapshot(t *testing.T, c *target) snapshot {
	t.Helper()
	var s snapshot
	raw, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		s.mounts = append(s.mounts, strings.Join(strings.Fields(line)[2:], " "))
	}
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		s.interfaces = append(s.interfaces, i.Name)
	}
	for _, command := range [][]string{{"nft", "--stateless", "list", "ruleset"}, {"ip", "rule"}, {"ip", "route", "show", "table", "all"}} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", command, out)
		s.rules = append(s.rules, string(out))
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		// Groups come and go while this walks.
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "rollcall-"+c.name) {
			s.cgroups = append(s.cgroups, path)
		}
		return nil
	})
	require.NoError(t, err)
	for _, p := range fixedPaths {
		_, err := os.Lstat(p)
		s.paths = append(s.paths, fmt.Sprint(p, " exists: ", err == nil))
	}
	for _, p := range parameters {
		raw, err := os.ReadFile(filepath.Join("/proc/sys", p))
		s.parameters = append(s.parameters, fmt.Sprint(p, " = ", string(raw), err))
	}
	sort.Strings(s.mounts)
	return s
}

// requireSame fails the test if anything of the cluster is left.
func (s snapshot) requireSame(t *testing.T, c *target, namespaces []string) {
	t.Helper()
	// A daemon that cleans up after a killed "up" isn't waited for by anybody.
	eventually(t, "nothing is left", func() error {
		for _, path := range []string{c.state, c.state + ".lock"} {
			if _, err := os.Stat(path); err == nil {
				return fmt.Errorf("%s is left", path)
			}
		}
		return noProcesses(c, namespaces)
	})
	require.Equal(t, s, takeSnapshot(t, c))
}

// run0 reads the record of what runs.
func (c *target) run0(t *testing.T) state.Run {
	t.Helper()
	run, err := state.Dir(c.state).Run()
	require.NoError(t, err)
	return run
}

// kinds of namespaces that a full cluster has of its own.
var kinds = []string{"mnt", "net", "pid", "uts"}

// namespaces of the running cluster.
func (c *target) namespaces(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, k := range kinds {
		mine, err := os.Readlink("/proc/self/ns/" + k)
		require.NoError(t, err)
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", c.run0(t).Init.PID, k))
		require.NoError(t, err)
		require.NotEqual(t, mine, its, "the cluster must have a %s namespace of its own", k)
		all = append(all, its)
	}
	return all
}

// noProcesses is an error if a process of the cluster is left: one in its
// namespaces, or one that was started with its state folder.
func noProcesses(c *target, namespaces []string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Processes end while this looks; what can't be read is gone.
		for _, k := range kinds {
			ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, k))
			for _, its := range namespaces {
				if ns == its {
					return fmt.Errorf("process %d is left in namespace %s", pid, ns)
				}
			}
		}
		if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(raw), c.state) {
			return fmt.Errorf("process %d is left: %s", pid, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return nil
}
