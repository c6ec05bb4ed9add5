package release

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// addition is a file that the published module lacks: module archives leave out
// symbolic links and files that the project's own build generates.
type addition struct {
	Path string
	// CopyOf is a file of the module; else Content is written.
	CopyOf, Content string
}

var additions = []addition{
	// Upstream, the Linux file is a symbolic link to the one for macOS.
	{Path: "workflow/executor/osspecific/signal_linux.go", CopyOf: "workflow/executor/osspecific/signal_darwin.go"},
	// The command line embeds the built web UI for "argo server".
	{Path: "ui/dist/app/index.html", Content: "<!doctype html><title>Argo Workflows</title><p>This build has no web UI.</p>\n"},
}

// copySource copies what compiles out of the module's folder and puts the
// additions in. The Go tool refuses overlays in its module cache, therefore a
// copy.
func copySource(module, target string) error {
	err := filepath.WalkDir(module, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !compiles(d.Name()) {
			return nil
		}
		rel, err := filepath.Rel(module, p)
		if err != nil {
			return err
		}
		return copyFile(p, filepath.Join(target, rel))
	})
	if err != nil {
		return fmt.Errorf("copy module source: %w", err)
	}
	for _, a := range additions {
		to := filepath.Join(target, a.Path)
		if _, err := os.Lstat(to); err == nil {
			return fmt.Errorf("add %s: the module has this file by now; remove it from the additions", a.Path)
		}
		if a.CopyOf != "" {
			err = copyFile(filepath.Join(module, a.CopyOf), to)
		} else {
			err = writeFile(to, []byte(a.Content))
		}
		if err != nil {
			return fmt.Errorf("add %s: %w", a.Path, err)
		}
	}
	return nil
}

func compiles(name string) bool {
	return name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, data)
}

func writeFile(to string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
