package main

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// otherFlags holds the flags of replays with two releases of kvferry.
type otherFlags struct {
	path    string
	runs    []string
	upgrade bool
}

func (f *otherFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "other", "", "the kvferry binary of another release, which the processes of --other-runs run")
	cmd.Flags().StringSliceVar(&f.runs, "other-runs", []string{"decode", "node-1", "instance-1", "directory-1"},
		"with --other: names of processes (prefill, decode-0, node-2, instance-1, directory-0, proxy), or without the number all of a kind")
	cmd.Flags().BoolVar(&f.upgrade, "upgrade", false, "with --other: a process that is killed starts again as this release")
}

// resolve returns the other release, or nil if all processes run this release.
func (f *otherFlags) resolve(cmd *cobra.Command) (*demo.OtherRelease, error) {
	if f.path == "" {
		for _, name := range []string{"other-runs", "upgrade"} {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--%s is set, but no other release is named; add --other BINARY, or leave out --%s", name, name)
			}
		}
		return nil, nil
	}
	path, err := filepath.Abs(f.path)
	if err != nil {
		return nil, usageError{err}
	}
	if _, err := os.Stat(path); err != nil {
		return nil, usageError{err}
	}
	if _, err := exec.LookPath(path); err != nil {
		return nil, usagef("--other is %s, which is not a program; name the kvferry binary of another release", f.path)
	}
	if len(f.runs) == 0 {
		return nil, usagef("--other-runs names no process; name at least one, or leave it out")
	}
	return &demo.OtherRelease{Path: path, Processes: f.runs, Upgrade: f.upgrade}, nil
}
