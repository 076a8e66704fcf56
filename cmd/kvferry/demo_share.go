package main

import (
	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

const (
	directoriesMax = 8
	pagesMin       = 256
	pagesMax       = 1 << 20
)

// shareFlags holds the flags of the sharing modes.
type shareFlags struct{ directories, pages int }

func (f *shareFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.directories, "directories", 2, "with --mode p2p: the number of directories")
	cmd.Flags().IntVar(&f.pages, "pages", 1024,
		"with --mode p2p: the size of an instance's cache in chunks of 128 KiB")
}

// checkUsage returns a usage error if a flag does not fit the mode: a flag of the sharing modes in a different mode, or
// a flag that the sharing modes do not have.
func (f *shareFlags) checkUsage(cmd *cobra.Command, isSharing bool, role string, device *deviceFlags) error {
	for _, name := range []string{"directories", "pages"} {
		if !isSharing && cmd.Flags().Changed(name) {
			return usagef("--%s is %s, which applies only to nodes that share; add --mode p2p", name, cmd.Flags().Lookup(name).Value)
		}
	}
	switch {
	case !isSharing:
		return nil
	case f.directories < 1 || f.directories > directoriesMax:
		return usagef("--directories is %d; use 1 to %d", f.directories, directoriesMax)
	case f.pages < pagesMin || f.pages > pagesMax:
		return usagef("--pages is %d; use %d to %d", f.pages, pagesMin, pagesMax)
	case device.device != "cpu":
		return usagef("--device is %q; nodes that share are played only in host memory: leave out --device", device.device)
	case cmd.Flags().Changed("bidirectional"):
		return usagef("--bidirectional applies only to prefill and decode nodes; leave it out with --mode p2p")
	case role != "each" && role != roleBoth:
		return usagef("--role is %q; use each for nodes that only share, or both", role)
	}
	return nil
}

// playSharing replays the trace once for each sharing mode.
func playSharing(cmd *cobra.Command, o demo.SharingOptions, modes []demo.Mode, asJSON bool) error {
	var summary demo.Summary[*demo.SharingReport]
	for _, o.Mode = range modes {
		finish := showReplayProgress(cmd.ErrOrStderr(), string(o.Mode), &o.Options)
		report, err := demo.RunSharing(cmd.Context(), o)
		finish()
		if err != nil {
			return err
		}
		if summary.Add(report); asJSON {
			continue
		}
		if err := report.Print(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), summary); err != nil {
			return err
		}
	}
	if !summary.OK {
		return errFinding
	}
	return nil
}
