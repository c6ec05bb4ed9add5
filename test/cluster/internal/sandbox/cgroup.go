package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sethvargo/go-retry"
	"golang.org/x/sys/unix"
)

const cgroupFS = "/sys/fs/cgroup"

// CgroupVersion is the machine's: 2 if the unified hierarchy is mounted at
// /sys/fs/cgroup, else 1. A machine with both (hybrid) has version 1.
func CgroupVersion() (int, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(cgroupFS, &s); err != nil {
		return 0, fmt.Errorf("look at %s: %w", cgroupFS, err)
	}
	if s.Type == unix.CGROUP2_SUPER_MAGIC {
		return 2, nil
	}
	return 1, nil
}

// hierarchies are the folders below which a control group must exist.
func hierarchies(version int) ([]string, error) {
	if version == 2 {
		return []string{cgroupFS}, nil
	}
	entries, err := os.ReadDir(cgroupFS)
	if err != nil {
		return nil, fmt.Errorf("list control group hierarchies: %w", err)
	}
	var all []string
	for _, e := range entries {
		// A link is a second name of a hierarchy (cpu -> cpu,cpuacct).
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(cgroupFS, e.Name())
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err == nil && (s.Type == unix.CGROUP_SUPER_MAGIC || s.Type == unix.CGROUP2_SUPER_MAGIC) {
			all = append(all, dir)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("list control group hierarchies: none below %s", cgroupFS)
	}
	return all, nil
}

// MakeCgroups makes the control group in every hierarchy, ready to have
// groups below it.
func MakeCgroups(version int, name string) error {
	all, err := hierarchies(version)
	if err != nil {
		return err
	}
	if version == 2 {
		if err := delegate(cgroupFS); err != nil {
			return err
		}
	}
	for _, h := range all {
		dir := filepath.Join(h, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make control group: %w", err)
		}
		// A new group of the cpuset hierarchy has no processors and no memory
		// nodes, and nothing can run in it until it has.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(h, dir, f); err != nil {
				return err
			}
		}
	}
	if version == 2 {
		return delegate(filepath.Join(cgroupFS, name))
	}
	return nil
}

// inherit copies a value of the parent group, if it has it and the new one is
// empty (version 1 only: in version 2 empty means all).
func inherit(parent, dir, file string) error {
	value, err := os.ReadFile(filepath.Join(parent, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read control group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
		return fmt.Errorf("set %s of control group: %w", file, err)
	}
	return nil
}

// wanted are the controllers that kubelet and runc use.
var wanted = map[string]bool{"cpuset": true, "cpu": true, "io": true, "memory": true, "pids": true, "hugetlb": true}

// delegate lets groups below dir use the wanted controllers that dir has. On
// the root group this outlives the cluster: another may rely on it by then.
func delegate(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	has := map[string]bool{}
	for _, c := range strings.Fields(string(enabled)) {
		has[c] = true
	}
	for _, c := range strings.Fields(string(available)) {
		if has[c] || !wanted[c] {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("enable controller %s in %s (in a container, its processes must be moved out of the root group first): %w", c, control, err)
		}
	}
	return nil
}

// RemoveCgroups removes the control group and all below it from every
// hierarchy. Its processes must have been killed; the kernel may need a moment
// to be done with them.
func RemoveCgroups(ctx context.Context, version int, name string) error {
	const limit = 15 * time.Second
	all, err := hierarchies(version)
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := filepath.Join(h, name)
		backoff := retry.WithMaxDuration(limit, retry.NewConstant(50*time.Millisecond))
		err := retry.Do(ctx, backoff, func(context.Context) error {
			return retry.RetryableError(removeTree(dir))
		})
		if err != nil {
			return fmt.Errorf("remove control group %s: %w", dir, err)
		}
	}
	return nil
}

// removeTree removes a control group from the leaves up. The files in it
// belong to the kernel and go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}
