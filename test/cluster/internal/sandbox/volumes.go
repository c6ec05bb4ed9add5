package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// volumeMode lets pods of any user write to their volumes. Kubernetes' hostpath
// provisioner makes folders that only root may write to, and kubelet doesn't
// apply a pod's fsGroup to this kind of volume; on a real storage class it
// would.
const volumeMode = 0o777

// OpenVolumes sets the mode of the volumes in dir, those that are there now
// and, until ctx ends, each new one as it is made: long before a pod can use
// it, since claim and volume must be bound first.
func OpenVolumes(ctx context.Context, dir string, log *slog.Logger) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch volumes: %w", err)
	}
	if err := watcher.Add(dir); err != nil {
		watcher.Close()
		return fmt.Errorf("watch volumes: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		watcher.Close()
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, e := range entries {
		open(filepath.Join(dir, e.Name()), log)
	}
	go func() {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-watcher.Events:
				if e.Has(fsnotify.Create) {
					open(e.Name, log)
				}
			case err := <-watcher.Errors:
				log.Error("watch volumes", "error", err)
			}
		}
	}()
	return nil
}

func open(volume string, log *slog.Logger) {
	if err := os.Chmod(volume, volumeMode); err != nil && !os.IsNotExist(err) {
		log.Error("set mode of volume", "error", err)
	}
}
