// Package sandbox is what surrounds a full cluster's components: mount,
// network, pid and host name namespaces, and control groups.
//
// It guarantees that nothing the components mount, write to fixed paths, set as
// machine-wide kernel parameters, or configure in the network is seen outside.
// It is no security boundary: whatever runs as root inside can get out.
package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespaces are those of a full cluster.
const Namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS

// masked folders are empty in the sandbox at first: the components have fixed
// paths below them.
var masked = []string{"/run", "/tmp", "/var/lib", "/var/log"}

// machineWide are kernel parameters that kubelet would set for the whole
// machine. In the sandbox they are files that have the wanted values already.
var machineWide = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// Mounts builds the sandbox's view of the file system; it must run in a new
// mount and pid namespace. Folders in keep stay visible at their paths; binds
// maps paths of the sandbox to folders that hold their content.
func Mounts(keep []string, binds map[string]string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	kept, err := hold(keep)
	if err != nil {
		return err
	}
	for _, dir := range masked {
		if err := mask(dir); err != nil {
			return err
		}
	}
	for path, f := range kept {
		if err := restore(path, f); err != nil {
			return err
		}
	}
	for path, source := range binds {
		if err := bind(source, path); err != nil {
			return err
		}
	}
	if err := maskParameters(); err != nil {
		return err
	}
	// Volumes of a pod that are mounted while it runs must reach its
	// containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	return nil
}

// hold opens the folders that the masks would hide.
func hold(keep []string) (map[string]*os.File, error) {
	kept := map[string]*os.File{}
	for _, path := range keep {
		for _, dir := range masked {
			if !strings.HasPrefix(path, dir+"/") {
				continue
			}
			f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return nil, fmt.Errorf("hold folder: %w", err)
			}
			kept[path] = f
		}
	}
	return kept, nil
}

// mask mounts an empty folder over dir.
func mask(dir string) error {
	mode := "mode=0755"
	if dir == "/tmp" {
		mode = "mode=1777"
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("find %s: %w", dir, err)
	}
	if err := unix.Mount("tmpfs", real, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, mode); err != nil {
		return fmt.Errorf("mask %s: %w", dir, err)
	}
	return nil
}

// restore puts a held folder back to its path.
func restore(path string, f *os.File) error {
	defer f.Close()
	return bind(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path)
}

func bind(source, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	if err := unix.Mount(source, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	return nil
}

// maskParameters replaces the machine-wide kernel parameters by files.
func maskParameters() error {
	dir := "/run/kernel-parameters"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for name, value := range machineWide {
		path := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(path); err != nil {
			continue // this kernel doesn't have it, so nobody can set it
		}
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("write parameter: %w", err)
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("replace %s: %w", path, err)
		}
	}
	return nil
}
