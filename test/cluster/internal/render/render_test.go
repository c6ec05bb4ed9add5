package render

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/cluster/internal/pki"
	"github.com/rollcall-dev/rollcall/test/cluster/internal/state"
)

func fullSpec() state.Spec {
	return state.Spec{
		Name: "one", Mode: state.Full, Port: 20000, Kube: "/bin/kube", ProxyMode: "nftables",
		Images:   map[string]string{"pause": "rollcall.internal/pause:1"},
		Programs: map[string]string{"containerd": "/usr/bin/containerd", "runc": "/usr/sbin/runc", "cni": "/usr/lib/cni"},
	}
}

// rendered is a full cluster's configuration.
func rendered(t *testing.T) (state.Dir, Files) {
	t.Helper()
	d, s := state.Dir(t.TempDir()), fullSpec()
	require.NoError(t, pki.Ensure(d.PKI(), Certificates(s)))
	f, err := Common(d)
	require.NoError(t, err)
	require.NoError(t, Node(d, s, f))
	return d, f
}

func TestEveryFileIsWellFormed(t *testing.T) {
	t.Parallel()
	_, files := rendered(t)
	for path, content := range files {
		var v any
		switch filepath.Ext(path) {
		case ".yaml", ".kubeconfig":
			require.NoError(t, yaml.UnmarshalStrict(content, &v), path)
		case ".conflist":
			require.NoError(t, json.Unmarshal(content, &v), path)
		}
		require.NotContains(t, string(content), "<no value>", path)
		require.NotContains(t, string(content), `""`, path)
	}
}

func TestEveryFileNamedByACommandIsWritten(t *testing.T) {
	t.Parallel()
	d, files := rendered(t)
	require.NoError(t, files.WriteAll())
	var args []string
	for _, c := range NodeCommands(d, fullSpec()) {
		require.Equal(t, c.Name, c.Args[0])
		args = append(args, c.Args[1:]...)
	}
	for _, a := range args {
		_, value, _ := strings.Cut(a, "=")
		if filepath.Dir(value) == d.Config() || filepath.Dir(value) == d.PKI() {
			require.FileExists(t, value)
		}
	}
	info, err := os.Stat(kubeletConfig(d))
	require.NoError(t, err)
	require.Zero(t, info.Mode()&0o077, "configuration is for the owner only")
}

func TestContainerdConfiguration(t *testing.T) {
	t.Parallel()
	d, files := rendered(t)
	got := string(files[containerdConfig(d)])
	for _, want := range []string{
		`sandbox_image = "rollcall.internal/pause:1"`, `address = "/run/containerd/containerd.sock"`,
		`bin_dir = "/usr/lib/cni"`, `BinaryName = "/usr/sbin/runc"`,
	} {
		require.Contains(t, got, want)
	}
}

func TestSocketsDoNotDependOnTheStateFolder(t *testing.T) {
	t.Parallel()
	const longest = 107 // of a Unix socket's path, unix(7)
	deep := state.Dir("/" + strings.Repeat("deep/", 60))
	for _, c := range NodeCommands(deep, fullSpec()) {
		for _, a := range c.Args {
			if strings.Contains(a, ".sock") {
				require.Less(t, len(a), longest, a)
			}
		}
	}
}

func TestControlPlaneArgs(t *testing.T) {
	t.Parallel()
	d := state.Dir("/s")
	args := ControlPlaneArgs(d, state.Spec{Name: "one", Mode: state.ControlPlane, Port: 20000, Kube: "/bin/kube"})
	require.Equal(t, "controlplane", args[0])
	for _, want := range []string{
		"--apiserver=--secure-port=20000",
		"--apiserver=--bind-address=127.0.0.1",
		"--apiserver=--authorization-mode=RBAC",
		"--apiserver=--audit-log-path=/s/audit.log",
		"--controller-manager=--secure-port=0",
		"--scheduler=--secure-port=0",
	} {
		require.Contains(t, args, want)
	}
	for _, a := range args {
		require.NotContains(t, a, "0.0.0.0", "nothing may listen beyond the loopback")
	}
}

func TestCgroupRootTellsStateFoldersApart(t *testing.T) {
	t.Parallel()
	s := fullSpec()
	a, b := CgroupRoot("/a", s), CgroupRoot("/b", s)
	require.NotEqual(t, a, b)
	require.True(t, strings.HasPrefix(a, "rollcall-one-"), a)
	require.Equal(t, a, CgroupRoot("/a", s))
}

func TestAuditPolicyNeverRecordsBodies(t *testing.T) {
	t.Parallel()
	raw, err := AuditPolicy()
	require.NoError(t, err)
	var p struct{ Rules []struct{ Level string } }
	require.NoError(t, yaml.Unmarshal(raw, &p))
	for _, r := range p.Rules {
		require.Contains(t, []string{"None", "Metadata"}, r.Level)
	}
}
