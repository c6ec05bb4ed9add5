package gobuild

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program makes a module with one program, and its target.
func program(t *testing.T) Target {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/hello\n\ngo 1.26\n")
	write(t, dir, "main.go", "package main\n\nvar said = \"nothing\"\n\nfunc main() { print(said) }\n")
	return Target{Name: "hello", Module: dir, Package: ".", Sources: []string{"."}, Variables: map[string]string{"main.said": "hello"}}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func builder(t *testing.T) Builder {
	t.Helper()
	return Builder{Dir: t.TempDir(), Log: t.Logf}
}

func TestHash(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*testing.T, *Target)
		same   bool
	}{
		"nothing changed":                  {func(*testing.T, *Target) {}, true},
		"a test changed":                   {func(t *testing.T, x *Target) { write(t, x.Module, "main_test.go", "package main\n") }, true},
		"a nested module changed":          {func(t *testing.T, x *Target) { write(t, x.Module, "sub/go.mod", "module sub\n") }, true},
		"a source changed":                 {func(t *testing.T, x *Target) { write(t, x.Module, "main.go", "package main\n\nfunc main() {}\n") }, false},
		"a source was added":               {func(t *testing.T, x *Target) { write(t, x.Module, "b/b.go", "package b\n") }, false},
		"a file to embed was added":        {func(t *testing.T, x *Target) { write(t, x.Module, "b.yaml", "a: b\n") }, false},
		"a dependency changed":             {func(t *testing.T, x *Target) { write(t, x.Module, "go.sum", "x v1 h1:y=\n") }, false},
		"a link-time value changed":        {func(_ *testing.T, x *Target) { x.Variables["main.said"] = "bye" }, false},
		"another package of it is built":   {func(_ *testing.T, x *Target) { x.Package = "./b" }, false},
		"only other sources are looked at": {func(_ *testing.T, x *Target) { x.Sources = []string{"go.mod"} }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := program(t)
			before, err := target.Hash(t.Context())
			require.NoError(t, err)
			c.change(t, &target)
			after, err := target.Hash(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.same, before == after)
		})
	}
}

func TestHashDoesNotDependOnTheFolder(t *testing.T) {
	t.Parallel()
	a, err := program(t).Hash(t.Context())
	require.NoError(t, err)
	b, err := program(t).Hash(t.Context())
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func TestBuildOnceForManyCallers(t *testing.T) {
	t.Parallel()
	target, b := program(t), builder(t)
	var mu sync.Mutex
	built, paths := 0, map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			path, cached, err := b.Build(context.WithoutCancel(t.Context()), target)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if !cached {
				built++
			}
			paths[path] = true
		}()
	}
	wg.Wait()
	require.Equal(t, 1, built, "builds")
	require.Len(t, paths, 1)
	for p := range paths {
		info, err := os.Stat(p)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&0o111, "must be executable")
	}
}

func TestBuildSaysWhyItFailed(t *testing.T) {
	t.Parallel()
	target, b := program(t), builder(t)
	write(t, target.Module, "main.go", "package main\n\nfunc main() { missing() }\n")
	_, _, err := b.Build(t.Context(), target)
	require.ErrorContains(t, err, "undefined: missing")
	left, err := filepath.Glob(filepath.Join(b.Dir, "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left, "files left in the cache by a failed build")
}

func TestBuildStopsWhenCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := builder(t).Build(ctx, program(t))
	require.ErrorIs(t, err, context.Canceled)
}

func TestPruneRemovesOnlyOldBuildsOfTheSameProgram(t *testing.T) {
	t.Parallel()
	b := builder(t)
	old := time.Now().Add(-2 * keepUnused)
	for name, at := range map[string]time.Time{"kube-1": old, "kube-2": time.Now(), "coredns-1": old} {
		write(t, b.Dir, name, "x")
		require.NoError(t, os.Chtimes(filepath.Join(b.Dir, name), at, at))
	}
	b.prune("kube")
	require.NoFileExists(t, filepath.Join(b.Dir, "kube-1"))
	require.FileExists(t, filepath.Join(b.Dir, "kube-2"))
	require.FileExists(t, filepath.Join(b.Dir, "coredns-1"))
}

func TestFromNetwork(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		output []string
		want   bool
	}{
		"a refused connection is the network's fault": {[]string{`main.go:1:8: Get "https://proxy": dial tcp: connection refused`}, true},
		"a compiler's error isn't":                    {[]string{"./main.go:3:15: undefined: missing"}, false},
		"no output isn't":                             {nil, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, fromNetwork(c.output))
		})
	}
}
