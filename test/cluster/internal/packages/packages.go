// Package packages finds the machine's programs that a full cluster needs, and
// installs those that are missing from Debian's packages.
//
// It guarantees that installing starts no service: containerd must not run on
// the machine itself. It doesn't guarantee anything about versions; Debian 12
// and later are fine.
package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// need is a program and the Debian package that has it.
var need = map[string]string{
	"containerd":              "containerd",
	"containerd-shim-runc-v2": "containerd",
	"ctr":                     "containerd",
	"runc":                    "runc",
	"ip":                      "iproute2",
	"nft":                     "nftables",
	"iptables":                "iptables",
	"conntrack":               "conntrack",
	"mount":                   "mount",
	"nsenter":                 "util-linux",
}

const (
	cniPackage = "containernetworking-plugins"
	// cniKey is the name under which Find returns the plugins' folder.
	cniKey = "cni"
)

// cniDirs are the usual folders of the network plugins.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// cniPlugins are those that the cluster's network configuration names, and the
// one that containerd always wants.
var cniPlugins = []string{"ptp", "host-local", "portmap", "loopback"}

// systemDirs are searched beside PATH, which on Debian lacks them for users.
var systemDirs = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

// installLimit bounds a run of apt-get; 20 s is usual.
const installLimit = 10 * time.Minute

// ErrMissing is returned when programs are missing and can't be installed.
var ErrMissing = errors.New("programs are missing")

// Find returns the paths of the needed programs by name, and as "cni" the
// folder of the network plugins, installing what is missing.
func Find(ctx context.Context, log func(string, ...any)) (map[string]string, error) {
	if err := removeGuard(guardFile); err != nil { // of an installation that was killed
		return nil, err
	}
	found, missing := look()
	if len(missing) == 0 {
		return found, nil
	}
	hint := "apt-get install --no-install-recommends " + strings.Join(missing, " ")
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: as root, run %s", ErrMissing, hint)
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return nil, fmt.Errorf("%w, and this machine has no apt-get: install what Debian's packages %s have", ErrMissing, strings.Join(missing, ", "))
	}
	log("installing %s", strings.Join(missing, " "))
	if err := install(ctx, apt, missing); err != nil {
		return nil, fmt.Errorf("install packages (to do it by hand: %s): %w", hint, err)
	}
	found, missing = look()
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w after the installation: %s", ErrMissing, strings.Join(missing, ", "))
	}
	return found, nil
}

// look returns the programs that are there, and the packages of the others.
func look() (found map[string]string, missing []string) {
	found = map[string]string{}
	packages := map[string]bool{}
	for program, pkg := range need {
		if path := lookPath(program); path != "" {
			found[program] = path
		} else {
			packages[pkg] = true
		}
	}
	if dir := lookCNI(); dir != "" {
		found[cniKey] = dir
	} else {
		packages[cniPackage] = true
	}
	for p := range packages {
		missing = append(missing, p)
	}
	sort.Strings(missing)
	return found, missing
}

func lookPath(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, dir := range systemDirs {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

func lookCNI() string {
	for _, dir := range cniDirs {
		all := true
		for _, plugin := range cniPlugins {
			_, err := os.Stat(filepath.Join(dir, plugin))
			all = all && err == nil
		}
		if all {
			return dir
		}
	}
	return ""
}

// guardFile tells Debian's packages whether they may start services; guard is
// our answer, by which a file that was left is known.
const (
	guardFile = "/usr/sbin/policy-rc.d"
	guard     = "#!/bin/sh\n# While rollcall's test cluster installs packages: start no service.\nexit 101\n"
)

// install runs apt-get, with services kept from starting. It updates the
// package lists only if it doesn't work without.
func install(ctx context.Context, apt string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	if err := placeGuard(guardFile); err != nil {
		return err
	}
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, apt, append([]string{"-q", "-y", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		// Not SIGKILL: an interrupted dpkg should put things in order.
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 30 * time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, tail(string(out)))
		}
		return nil
	}
	get := append([]string{"install", "--no-install-recommends"}, names...)
	err := run(get...)
	if err != nil && ctx.Err() == nil {
		if updateErr := run("update"); updateErr != nil {
			return errors.Join(err, updateErr, removeGuard(guardFile))
		}
		err = run(get...)
	}
	return errors.Join(err, removeGuard(guardFile))
}

func tail(s string) string {
	const lines = 15
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// placeGuard writes the guard unless the machine has a policy of its own.
func placeGuard(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep services from starting: %w", err)
	}
	_, err = f.WriteString(guard)
	return errors.Join(err, f.Close())
}

// removeGuard removes the guard; another policy stays.
func removeGuard(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil || string(raw) != guard {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the policy that keeps services from starting: %w", err)
	}
	return nil
}
