package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/doctor"
	"github.com/kvferry/kvferry/runtime/config"
)

// The limits and the default of --copy-bytes. The smallest copy is a page of the system.
const (
	copyBytesMin     = 4 << 10
	copyBytesDefault = 64 << 20
	copyBytesMax     = 4 << 30
)

func newDoctorCommand() *cobra.Command {
	var file string
	var asJSON bool
	var o doctor.Options
	bytes := config.Size(copyBytesDefault)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks to run a node, and how fast it copies",
		Long: `doctor looks at this machine as a node would find it: kernel, limits, memory, cores
and network; with libnixl whether it writes; with CANN also the NPUs, the links between them, what HCCL can do and
how fast memory is copied. With --config it says whether that configuration can run
here. Everything that is not as it should be has a remedy.

A note is worth knowing, a warning will cost speed or fail under load, a problem
keeps nodes from running; only problems make the exit code 1. Missing NPUs are a
problem only where --config or --library asks for them. Speeds are measured and
not judged: best of three copies, for which each device lends twice --copy-bytes.`,
		Example: `  kvferry doctor
  kvferry doctor --config receiver.yaml
  kvferry doctor --library .cache/softnpu/plain/libcannemu.so --copy-bytes 8MiB --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if bytes < copyBytesMin || bytes > copyBytesMax {
				return usagef("--copy-bytes is %s; use 4KiB to 4GiB", &bytes)
			}
			if file != "" {
				data, err := os.ReadFile(file)
				if err != nil {
					return usageError{err}
				}
				o.Wants.Config, o.Wants.Refused = config.Parse(file, data, os.LookupEnv)
			}
			o.Wants.NoLibZMQ = libzmqAbsent
			o.CopyBytes = uint64(bytes)
			report := doctor.Inspect(cmd.Context(), doctor.This(), o)
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), report); err != nil {
					return err
				}
			} else if err := report.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
			if report.Problems > 0 {
				return errFinding
			}
			return nil
		},
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&file, "config", "", "a node's configuration, YAML, that is to run here")
	cmd.Flags().StringVar(&o.Library, "library", "", "the AscendCL library to load, instead of searching for it")
	cmd.Flags().Var(&bytes, "copy-bytes", "how much each measured copy moves")
	return cmd
}
