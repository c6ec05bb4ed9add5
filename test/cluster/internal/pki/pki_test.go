package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnsure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := Cert{Name: "server", User: "s", DNS: []string{"localhost"}, IPs: []string{"127.0.0.1"}}
	require.NoError(t, Ensure(dir, []Cert{server}))

	ca, _, err := load(dir, CA)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	cert, _, err := load(dir, "server")
	require.NoError(t, err)
	for _, name := range []string{"localhost", "127.0.0.1"} {
		_, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: pool})
		require.NoError(t, err, name)
	}
	_, err = cert.Verify(x509.VerifyOptions{DNSName: "elsewhere", Roots: pool})
	require.Error(t, err)

	before, err := os.ReadFile(filepath.Join(dir, "server.crt"))
	require.NoError(t, err)
	client := Cert{Name: "client", User: "admin", Groups: []string{"system:masters"}}
	require.NoError(t, Ensure(dir, []Cert{server, client}))
	after, err := os.ReadFile(filepath.Join(dir, "server.crt"))
	require.NoError(t, err)
	require.Equal(t, before, after, "certificates of an earlier run must be kept")
	cert, _, err = load(dir, "client")
	require.NoError(t, err)
	require.Equal(t, "admin", cert.Subject.CommonName)
	require.Equal(t, []string{"system:masters"}, cert.Subject.Organization)

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode()&0o077, "%s is for the owner only", e.Name())
	}
}

func TestEnsureRefusesABadAddress(t *testing.T) {
	t.Parallel()
	err := Ensure(t.TempDir(), []Cert{{Name: "x", IPs: []string{"nowhere"}}})
	require.ErrorContains(t, err, `parse address "nowhere"`)
}

func TestEnsureRefusesADamagedAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, Ensure(dir, nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("damaged"), 0o600))
	require.ErrorContains(t, Ensure(dir, nil), "no PEM block")
}
