package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func runImage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := buildCommand(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestTwoBuildsPrintTheSameDigestAndWriteTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "rollcall")
	require.NoError(t, os.WriteFile(program, []byte("\x7fELF"), 0o755))
	var outputs, archives []string
	for _, name := range []string{"a.tar", "b.tar"} {
		out, err := runImage(t, "--tag", "rollcall:dev", "--output", filepath.Join(dir, name), "--arch", "amd64",
			"--entrypoint", "/usr/bin/rollcall", "--file", program+":/usr/bin/rollcall",
			"--link", "/usr/bin/stake=rollcall", "--link", "/usr/bin/unstake=rollcall",
			"--dir", "/tmp:1777", "--env", "PATH=/usr/bin", "--label", "org.opencontainers.image.licenses=Apache-2.0")
		require.NoError(t, err)
		outputs = append(outputs, out)
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		archives = append(archives, string(data))
	}
	require.Regexp(t, `(?m)^digest=sha256:[0-9a-f]{64}\ncompressed_bytes=[1-9][0-9]*$`, outputs[0])
	require.Equal(t, outputs[0], outputs[1])
	require.Equal(t, archives[0], archives[1])
}

func TestLabelsDefaultToTheTagAndCanBeOverridden(t *testing.T) {
	t.Parallel()
	labels, err := withDefaultLabels("example.test/group/rollcall:v1", []string{
		"org.opencontainers.image.version=v0", "org.opencontainers.image.version=v1.0.0", "org.opencontainers.image.description=a, b=c",
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"org.opencontainers.image.title":       "rollcall",
		"org.opencontainers.image.version":     "v1.0.0",
		"org.opencontainers.image.description": "a, b=c",
	}, labels)
}

func TestBadCommandLineIsRefused(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "x.tar")
	tests := map[string][]string{
		"no output named":     {"--tag", "a:b", "--entrypoint", "/x"},
		"no tag":              {"--output", out, "--entrypoint", "/x"},
		"malformed tag":       {"--output", out, "--entrypoint", "/x", "--tag", "A B"},
		"malformed file flag": {"--output", out, "--entrypoint", "/x", "--tag", "a:b", "--file", "nothing"},
		"malformed label":     {"--output", out, "--entrypoint", "/x", "--tag", "a:b", "--label", "x"},
		"root user":           {"--output", out, "--entrypoint", "/x", "--tag", "a:b", "--user", "0:0"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := runImage(t, args...)
			require.Error(t, err)
			require.NoFileExists(t, out)
		})
	}
}
