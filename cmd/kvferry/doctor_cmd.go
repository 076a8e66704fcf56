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
		Short: "Check whether this machine can run a node, and measure copies",
		Long: `doctor checks the machine for a node: kernel, limits, memory, cores and network. If
libnixl is installed, it writes between two agents and verifies the bytes. If CANN is
installed, it also checks the NPUs, the links between them and HCCL, and measures copies.
With --config, it checks whether the configuration can run on this machine. Every row
that is not ok has a remedy.

A note is worth knowing. A warning means lower speed, or failures under load. A problem
means that nodes cannot run; only problems make the exit code 1. Missing NPUs are a
problem only if --config or --library requires NPUs. Speeds are measured but not rated:
each is the best of three copies, which need two buffers of --copy-bytes on each device.`,
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
				o.Target.Config, o.Target.Err = config.Parse(file, data, os.LookupEnv)
			}
			o.Target.NoLibZMQ = libzmqAbsent
			o.CopyBytes = uint64(bytes)
			report := doctor.Inspect(cmd.Context(), doctor.LocalMachine(), o)
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
	cmd.Flags().StringVar(&file, "config", "", "the configuration of a node that is to run on this machine, YAML")
	cmd.Flags().StringVar(&o.Library, "library", "", "the AscendCL library to load, instead of searching for it")
	cmd.Flags().Var(&bytes, "copy-bytes", "the size of each measured copy")
	return cmd
}
