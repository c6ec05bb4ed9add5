// Package release turns the published Go module of Argo Workflows into the
// three programs a cluster needs: workflow-controller, argoexec and the argo
// command line.
//
// It guarantees that only the pinned module content is built (its checksum is
// compared), that the result is static and reports the release's version, that a
// finished build is found again by everything it depends on, and that two
// callers at once build once. It does not guarantee the web UI: the module does
// not contain its built files, so "argo server" serves a placeholder page.
package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The release that is built. Commit and date are what the module proxy reports
// as the origin of the version; Sum is the module's checksum as in a go.sum.
const (
	Module  = "github.com/argoproj/argo-workflows/v3"
	Version = "v3.7.18"
	Sum     = "h1:B8v2GIBCqUATiqrI3NaLGDplT2Id18bIruebwSXkFZI="
	commit  = "66e32e5cc367f223e2ecf4fbe852b95eaed83034"
	date    = "2026-08-14T07:11:57Z"
)

// Names of the programs, which are also their file names.
const (
	Controller = "workflow-controller"
	Executor   = "argoexec"
	CLI        = "argo"
)

// downloadLimit bounds the download of the module itself, some 10 MB.
const downloadLimit = 5 * time.Minute

// Programs lists what Build makes.
func Programs() []string { return []string{Controller, Executor, CLI} }

// Builder builds into a cache folder.
type Builder struct {
	// Cache is the folder that outlives the checkout, e.g. ~/.cache/rollcall.
	Cache string
	// Log gets a line when something long starts, every 15 s while it lasts,
	// and when it ends.
	Log func(format string, args ...any)
}

// Binaries are the finished programs.
type Binaries struct {
	// Key is the content address: it changes with the release, the Go release,
	// the platform and the way of building, and with nothing else.
	Key string
	// Dir holds the programs under their plain names; it is fit for PATH.
	Dir string
}

// Path of one of the Programs.
func (b Binaries) Path(program string) string { return filepath.Join(b.Dir, program) }

// Complete reports whether all programs are there.
func (b Binaries) Complete() bool {
	for _, p := range Programs() {
		if info, err := os.Stat(b.Path(p)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// CacheDir is the project's cache folder: $XDG_CACHE_HOME/rollcall, by default
// ~/.cache/rollcall.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "rollcall"), nil
}

// Locate tells where the programs are or will be, without building.
func (b Builder) Locate(ctx context.Context) (Binaries, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Env = environment()
	cmd.Dir = os.TempDir() // outside any module, so that a go.mod's toolchain line has no say
	goVersion, err := cmd.Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("ask for the Go version (is Go in PATH?): %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s@%s %s\n%s %s/%s\n%q\n%q\n", Module, Version, Sum,
		strings.TrimSpace(string(goVersion)), runtime.GOOS, runtime.GOARCH, arguments("OUT"), additions)
	key := hex.EncodeToString(h.Sum(nil))[:16]
	return Binaries{Key: key, Dir: filepath.Join(b.Cache, "bin", dirPrefix+Version+"-"+key)}, nil
}

// Download fetches the module, or finds it in Go's module cache, checks it
// against the pinned checksum, and returns its folder, which is read-only.
func Download(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", Module+"@"+Version)
	cmd.Env = environment()
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	var result struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &result); jsonErr == nil && result.Error != "" {
		return "", fmt.Errorf("download %s@%s (is the module proxy reachable?): %s", Module, Version, result.Error)
	}
	if err != nil {
		return "", fmt.Errorf("download %s@%s: %w", Module, Version, err)
	}
	if result.Sum != Sum {
		return "", fmt.Errorf("check %s@%s: checksum is %s, pinned is %s; do not use this module", Module, Version, result.Sum, Sum)
	}
	return result.Dir, nil
}

// environment is that of a reproducible build: static, without the caller's
// workspace and flags.
func environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOWORK=off", "GOFLAGS=")
}

// arguments of the one "go build" that makes all programs. timetzdata embeds the
// time zones that CronWorkflows name: an image from scratch has no zoneinfo.
func arguments(out string) []string {
	ld := "-s -w"
	for _, v := range [][2]string{
		{"version", Version}, {"gitTag", Version}, {"gitCommit", commit}, {"gitTreeState", "clean"}, {"buildDate", date},
	} {
		ld += " -X " + Module + "." + v[0] + "=" + v[1]
	}
	args := []string{"build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", "timetzdata", "-ldflags", ld, "-o", out + "/"}
	for _, p := range Programs() {
		args = append(args, "./cmd/"+p)
	}
	return args
}
