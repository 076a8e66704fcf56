package main

import (
	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// registeredFlags holds the flags of the mode push-reg.
type registeredFlags struct{ demo.RegisteredOptions }

func (f *registeredFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.Prefills, "prefill-tp", 2,
		"with --mode push-reg: tensor-parallel ranks of the prefill engine: 1, 2 or 4")
	cmd.Flags().IntVar(&f.Decodes, "decode-tp", 1, "with --mode push-reg: tensor-parallel ranks of the decode engine: 1, 2 or 4")
}

// checkUsage returns a usage error if a flag does not fit the mode: a flag of push-reg in a different mode, or a flag
// that push-reg does not have.
func (f *registeredFlags) checkUsage(cmd *cobra.Command, mode, role string, device *deviceFlags, recall bool) error {
	if demo.Mode(mode) != demo.PushReg {
		for _, name := range []string{"prefill-tp", "decode-tp"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s is %s, which applies only to registered blocks; add --mode push-reg", name,
					cmd.Flags().Lookup(name).Value)
			}
		}
		return nil
	}
	for _, name := range []string{"directories", "pages"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is %s, which applies only to nodes that share; leave it out with --mode push-reg", name,
				cmd.Flags().Lookup(name).Value)
		}
	}
	switch {
	case device.device != "cpu":
		return usagef("--device is %q; registered blocks are played only in host memory: leave out --device", device.device)
	case recall:
		return usagef("--bidirectional applies only to prefill and decode nodes; leave it out with --mode push-reg")
	case role != "each":
		return usagef("--role is %q; leave it out with --mode push-reg, in which each engine has one role", role)
	}
	if err := f.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// playRegistered replays the trace with registered blocks.
func playRegistered(cmd *cobra.Command, o demo.RegisteredOptions, asJSON bool) error {
	finish := showReplayProgress(cmd.ErrOrStderr(), string(o.Mode), &o.Options)
	report, err := demo.RunRegistered(cmd.Context(), o)
	finish()
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), demo.Summary[*demo.RegisteredReport]{Modes: []*demo.RegisteredReport{report},
			OK: report.OK})
	} else {
		err = report.Print(cmd.OutOrStdout())
	}
	if err == nil && !report.OK {
		err = errFinding
	}
	return err
}
