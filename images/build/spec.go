package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NonRootUser is the user and group that an image gets when its Spec names
// none. The number is the one that the distroless images call "nonroot", so that
// a pod's runAsUser can be written without looking into the image.
const NonRootUser = 65532

// Spec describes an image. The zero value of an optional field leaves that part
// of the image's configuration out.
type Spec struct {
	// Architecture is the GOARCH of the programs in the image, e.g. "amd64".
	// The operating system is always linux.
	Architecture string
	// Files are copied in from the host.
	Files []File
	// Links are symbolic links.
	Links []Link
	// Dirs are directories beyond the parents of files and links, which are
	// made by themselves with mode 0755.
	Dirs []Dir
	// User is the numeric "uid:gid" that the container runs as; empty means
	// 65532:65532. It must not be root's: pods that demand runAsNonRoot would
	// be refused only when they start.
	User string
	// Entrypoint and Cmd are the program and its default arguments.
	Entrypoint []string
	Cmd        []string
	// Env holds "NAME=value" entries.
	Env []string
	// Labels are the image's labels, by convention org.opencontainers.image.*.
	Labels map[string]string
	// WorkingDir is the directory a container starts in; empty means "/".
	WorkingDir string
	// Created stamps the image and each file in it, in whole seconds. The zero
	// value means the Unix epoch, which keeps rebuilds identical.
	Created time.Time
}

// File is a regular file of the host placed into the image.
type File struct {
	// Source is a path on the host; symbolic links are followed.
	Source string
	// Target is the absolute path in the image.
	Target string
	// Executable gives the file mode 0755 instead of 0644.
	Executable bool
}

// Link is a symbolic link in the image.
type Link struct {
	// Path is the absolute path of the link.
	Path string
	// Target is what it points to, absolute or relative to the link's folder.
	Target string
}

// Dir is a directory in the image.
type Dir struct {
	// Path is absolute.
	Path string
	// Mode holds permission bits, and the sticky bit as in octal 1777.
	Mode uint32
}

// ParseFile reads "SOURCE:TARGET". The file is executable in the image when its
// owner may execute it on the host.
func ParseFile(s string) (File, error) {
	source, target, ok := strings.Cut(s, ":")
	if !ok || source == "" || target == "" {
		return File{}, fmt.Errorf("parse file %q: want SOURCE:TARGET, e.g. out/rollcall:/usr/bin/rollcall", s)
	}
	info, err := os.Stat(source)
	if err != nil {
		return File{}, fmt.Errorf("parse file %q: %w", s, err)
	}
	return File{Source: source, Target: target, Executable: info.Mode()&0o100 != 0}, nil
}

// ParseLink reads "PATH=TARGET".
func ParseLink(s string) (Link, error) {
	p, target, ok := strings.Cut(s, "=")
	if !ok || p == "" || target == "" {
		return Link{}, fmt.Errorf("parse link %q: want PATH=TARGET, e.g. /usr/bin/stake=rollcall", s)
	}
	return Link{Path: p, Target: target}, nil
}

// ParseDir reads "PATH" (mode 0755) or "PATH:MODE" with an octal mode.
func ParseDir(s string) (Dir, error) {
	p, mode, ok := strings.Cut(s, ":")
	if !ok {
		return Dir{Path: p, Mode: 0o755}, nil
	}
	m, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || m > 0o1777 {
		return Dir{}, fmt.Errorf("parse dir %q: want PATH:MODE with an octal mode up to 1777, e.g. /tmp:1777", s)
	}
	return Dir{Path: p, Mode: uint32(m)}, nil
}

var numericUser = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

// uidGID returns the user as two numbers, with the default filled in.
func (s Spec) uidGID() (uid, gid int, err error) {
	user := s.User
	if user == "" {
		return NonRootUser, NonRootUser, nil
	}
	if !numericUser.MatchString(user) {
		return 0, 0, fmt.Errorf("user %q: want numeric UID:GID, so that a pod's runAsNonRoot can be checked without /etc/passwd", user)
	}
	u, g, _ := strings.Cut(user, ":")
	if uid, err = strconv.Atoi(u); err != nil {
		return 0, 0, fmt.Errorf("user %q: %w", user, err)
	}
	if gid, err = strconv.Atoi(g); err != nil {
		return 0, 0, fmt.Errorf("user %q: %w", user, err)
	}
	if uid == 0 {
		return 0, 0, fmt.Errorf("user %q: must not be root", user)
	}
	return uid, gid, nil
}

// Validate returns every problem of the Spec at once, joined.
func (s Spec) Validate() error {
	var errs []error
	if s.Architecture == "" {
		errs = append(errs, errors.New("architecture: missing, e.g. amd64"))
	}
	if len(s.Entrypoint) == 0 {
		errs = append(errs, errors.New("entrypoint: missing"))
	}
	if _, _, err := s.uidGID(); err != nil {
		errs = append(errs, err)
	}
	seen := map[string]bool{"/etc/passwd": true, "/etc/group": true}
	claim := func(kind, p string) {
		switch {
		case !path.IsAbs(p) || path.Clean(p) != p || p == "/":
			errs = append(errs, fmt.Errorf("%s %q: want a clean absolute path below /", kind, p))
		case seen[p]:
			errs = append(errs, fmt.Errorf("%s %q: the image has this path already", kind, p))
		}
		seen[p] = true
	}
	for _, f := range s.Files {
		claim("file", f.Target)
		if info, err := os.Stat(f.Source); err != nil {
			errs = append(errs, fmt.Errorf("file %q: %w", f.Target, err))
		} else if !info.Mode().IsRegular() {
			errs = append(errs, fmt.Errorf("file %q: source %s is not a regular file", f.Target, f.Source))
		}
	}
	for _, l := range s.Links {
		claim("link", l.Path)
		if !slices.ContainsFunc(s.Files, func(f File) bool { return f.Target == l.resolve() }) {
			errs = append(errs, fmt.Errorf("link %q: its target %s is not a file of the image", l.Path, l.resolve()))
		}
	}
	for _, d := range s.Dirs {
		claim("dir", d.Path)
	}
	for _, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			errs = append(errs, fmt.Errorf("env %q: want NAME=value", e))
		}
	}
	return errors.Join(errs...)
}

func (l Link) resolve() string {
	if path.IsAbs(l.Target) {
		return path.Clean(l.Target)
	}
	return path.Join(path.Dir(l.Path), l.Target)
}

func (f File) mode() fs.FileMode {
	if f.Executable {
		return 0o755
	}
	return 0o644
}
