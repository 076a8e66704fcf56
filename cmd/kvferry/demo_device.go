package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// deviceFlags holds the flags that choose the memory of the demo's pages.
type deviceFlags struct{ device, library, faults string }

func (f *deviceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.device, "device", "cpu", "where pages lie: cpu or npu")
	cmd.Flags().StringVar(&f.library, "library", "",
		"AscendCL, or the software NPU; KVFERRY_ASCENDCL if unset, else the one that is installed")
	cmd.Flags().StringVar(&f.faults, "faults", "",
		"play faults below the NPU's interface: "+demo.FaultNames()+", or rules of the software NPU")
}

// resolveNPUs returns the NPUs to replay with, one for each set of faults. A nil element stands for host memory. The
// plane is set to hccl if the pages are on NPUs.
func (f *deviceFlags) check(plane *string) ([]*demo.NPU, error) {
	switch *plane {
	case "auto", "shm", "tcp", demo.PlaneNIXL:
	default:
		return nil, usagef("--plane is %q; use auto, shm, tcp or nixl", *plane)
	}
	switch {
	case f.device != "cpu" && f.device != "npu":
		return nil, usagef("--device is %q; use cpu or npu", f.device)
	case f.device == "cpu" && f.library != "":
		return nil, usagef("--library is of an NPU; add --device npu")
	case f.device == "cpu" && f.faults != "":
		return nil, usagef("--faults are of the software NPU; add --device npu")
	case f.device == "cpu":
		return []*demo.NPU{nil}, nil
	case *plane != "auto":
		return nil, usagef("--plane %s moves memory of the process; leave it out with --device npu", *plane)
	}
	*plane = "hccl"
	library := f.library
	if library == "" {
		library = os.Getenv("KVFERRY_ASCENDCL")
	}
	n, err := demo.NewNPU(library)
	if err != nil {
		return nil, usageError{err}
	}
	if f.faults == "" {
		return []*demo.NPU{n}, nil
	}
	list, err := demo.ParseFaults(f.faults)
	if err != nil {
		return nil, usageError{err}
	}
	var npus []*demo.NPU
	for _, faults := range list {
		with, err := n.WithFaults(faults)
		if err != nil {
			return nil, usageError{err}
		}
		npus = append(npus, with)
	}
	return npus, nil
}

// addNPUHint adds to an error the hint to use the software NPU, unless the user has named a library.
func explainNPU(err error, n *demo.NPU) error {
	if n == nil || n.Library != "" {
		return err
	}
	return fmt.Errorf("%w\nto try it without an NPU, build the software one with make softnpu and give its path as "+
		"--library", err)
}
