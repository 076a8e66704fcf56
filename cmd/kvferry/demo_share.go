package main

import (
	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

const (
	directoriesMost = 8
	leastPages      = 256
	pagesMost       = 1 << 20
)

// shareFlags holds the flags of the sharing modes.
type shareFlags struct{ directories, pages int }

func (f *shareFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.directories, "directories", 2, "with --mode p2p: how many directories there are")
	cmd.Flags().IntVar(&f.pages, "pages", 1024,
		"with --mode p2p: how many chunks of 128 KiB the cache of an instance holds")
}

// checkUsage returns a usage error if a flag does not fit the mode: a flag of the sharing modes in a different mode, or
// a flag that the sharing modes do not have.
func (f *shareFlags) check(cmd *cobra.Command, shares bool, role string, on *deviceFlags) error {
	for _, name := range []string{"directories", "pages"} {
		if !shares && cmd.Flags().Changed(name) {
			return usagef("--%s is %s, and is of nodes that share; add --mode p2p", name, cmd.Flags().Lookup(name).Value)
		}
	}
	switch {
	case !shares:
		return nil
	case f.directories < 1 || f.directories > directoriesMost:
		return usagef("--directories is %d; use 1 to %d", f.directories, directoriesMost)
	case f.pages < leastPages || f.pages > pagesMost:
		return usagef("--pages is %d; use %d to %d", f.pages, leastPages, pagesMost)
	case on.device != "cpu":
		return usagef("--device is %q; nodes that share are played over memory of the processes: leave it out", on.device)
	case cmd.Flags().Changed("bidirectional"):
		return usagef("--bidirectional is of a prefill and its decodes; leave it out with --mode p2p")
	case role != "each" && role != roleBoth:
		return usagef("--role is %q; use each for nodes that only share, or both", role)
	}
	return nil
}

// playSharing replays the trace once for each sharing mode.
func playShared(cmd *cobra.Command, o demo.SharedOptions, modes []demo.Mode, asJSON bool) error {
	var all demo.Summary[*demo.SharedReport]
	for _, o.Mode = range modes {
		finish := showReplayProgress(cmd.ErrOrStderr(), string(o.Mode), &o.Options)
		report, err := demo.RunShared(cmd.Context(), o)
		finish()
		if err != nil {
			return err
		}
		if all.Add(report); asJSON {
			continue
		}
		if err := report.Print(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), all); err != nil {
			return err
		}
	}
	if !all.OK {
		return errFinding
	}
	return nil
}
