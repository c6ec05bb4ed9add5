package rollcall_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programs stand in for the real ones, which the end-to-end tests use.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rollcall"), []byte("#!/bin/sh\n[ \"$1\" = --list-steps ] && printf 'plan\\nstake\\n'\n"), 0o755))
	return dir
}

// config is what the test reads of an image's configuration.
type config struct {
	Config struct {
		User, WorkingDir string
		Entrypoint, Env  []string
		Labels           map[string]string
	}
}

// build runs image.sh and returns the image's configuration.
func build(t *testing.T, bin string, flags ...string) config {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "rollcall.tar")
	args := append([]string{bin, "--tag", "rollcall:dev", "--output", archive}, flags...)
	out, err := exec.CommandContext(t.Context(), "./image.sh", args...).CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			require.FailNow(t, "no configuration in the archive")
		}
		require.NoError(t, err)
		if strings.HasPrefix(h.Name, "sha256:") {
			var c config
			require.NoError(t, json.NewDecoder(tr).Decode(&c))
			return c
		}
	}
}

func TestDockerfileMakesTheSameImageAsTheScript(t *testing.T) {
	t.Parallel()
	bin := programs(t)
	root := filepath.Join(t.TempDir(), "rootfs")
	c := build(t, bin, "--rootfs", root)
	data, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	dockerfile := string(data)

	// Files: the Dockerfile copies what the script lays out.
	require.Contains(t, dockerfile, "RUN images/rollcall/image.sh /out --tag rollcall:dev --rootfs /rootfs\n")
	require.Contains(t, dockerfile, "COPY --from=build /rootfs/ /\n")
	for _, step := range []string{"plan", "stake"} {
		target, err := os.Readlink(filepath.Join(root, "usr", "bin", step))
		require.NoError(t, err)
		require.Equal(t, "rollcall", target)
	}
	require.FileExists(t, filepath.Join(root, "etc", "passwd"))

	// Configuration: the last stage repeats it.
	_, stage, ok := strings.Cut(dockerfile, "FROM scratch\n")
	require.True(t, ok)
	require.Equal(t, c.Config.User, instruction(t, stage, "USER"))
	require.Equal(t, c.Config.WorkingDir, instruction(t, stage, "WORKDIR"))
	require.Equal(t, strings.Join(c.Config.Env, " "), instruction(t, stage, "ENV"))
	var entrypoint []string
	require.NoError(t, json.Unmarshal([]byte(instruction(t, stage, "ENTRYPOINT")), &entrypoint))
	require.Equal(t, c.Config.Entrypoint, entrypoint)
	for _, label := range []string{"title", "description"} {
		label = "org.opencontainers.image." + label
		require.Contains(t, stage, label+`="`+c.Config.Labels[label]+`"`)
	}
}

func instruction(t *testing.T, stage, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^`+name+` (.+)$`).FindAllStringSubmatch(stage, -1)
	require.Len(t, m, 1, name)
	return m[0][1]
}

func TestLabelsCanBeOverridden(t *testing.T) {
	t.Parallel()
	c := build(t, programs(t), "--label", "org.opencontainers.image.description=other")
	require.Equal(t, "other", c.Config.Labels["org.opencontainers.image.description"])
}

func TestProgramWithoutStepsIsNoImage(t *testing.T) {
	t.Parallel()
	bin := programs(t)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "rollcall"), []byte("#!/bin/sh\n"), 0o755))
	out, err := exec.CommandContext(t.Context(), "./image.sh", bin, "--tag", "rollcall:dev", "--output", filepath.Join(bin, "x.tar")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "printed no steps")
}
