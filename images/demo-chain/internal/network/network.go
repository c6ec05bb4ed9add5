package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// fixedTime is the genesis time of seeded networks, so that they are the same
// at every run.
var fixedTime = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Make writes a new network to opts.Output, a folder that must be empty or not
// exist, and returns its public summary. On failure the folder may hold parts.
func Make(codec Codec, opts Options) (Summary, error) {
	if opts.GenesisTime.IsZero() {
		opts.GenesisTime = time.Now().UTC().Truncate(time.Second)
		if opts.Seed != "" {
			opts.GenesisTime = fixedTime
		}
	}
	if err := opts.validate(); err != nil {
		return Summary{}, fmt.Errorf("check options: %w", err)
	}
	if err := prepareOutput(opts.Output); err != nil {
		return Summary{}, err
	}
	ids, err := newIdentities(opts.Accounts, opts.Seed)
	if err != nil {
		return Summary{}, err
	}
	genesis, err := codec.genesis(opts, ids)
	if err != nil {
		return Summary{}, err
	}
	summary := newSummary(opts, ids)
	write := writeFiles
	if opts.Format == FormatKubernetes {
		write = writeKubernetes
	}
	if err := write(opts, ids, genesis, summary); err != nil {
		return Summary{}, err
	}
	return summary, nil
}

// prepareOutput refuses a folder with content: overwriting the keys of a
// network that runs would lose them.
func prepareOutput(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read output folder: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("output folder %s is not empty: keys in it are not overwritten; give an empty folder or remove it", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make output folder: %w", err)
	}
	return nil
}
