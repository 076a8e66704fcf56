package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// deviceFlags holds the flags that choose the memory of the demo's pages.
type deviceFlags struct{ device, library, faults string }

func (f *deviceFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.device, "device", "cpu", "the memory of the pages: cpu or npu")
	cmd.Flags().StringVar(&f.library, "library", "",
		"the AscendCL library or the software NPU (default: KVFERRY_ASCENDCL, or the installed library)")
	cmd.Flags().StringVar(&f.faults, "faults", "",
		"inject faults below the NPU's interface: "+demo.FaultNames()+", or rules of the software NPU")
}

// resolveNPUs returns the NPUs to replay with, one for each set of faults. A nil element stands for host memory. The
// plane is set to hccl if the pages are on NPUs.
func (f *deviceFlags) resolveNPUs(plane *string) ([]*demo.NPU, error) {
	switch *plane {
	case "auto", "shm", "tcp", demo.PlaneNIXL:
	default:
		return nil, usagef("--plane is %q; use auto, shm, tcp or nixl", *plane)
	}
	switch {
	case f.device != "cpu" && f.device != "npu":
		return nil, usagef("--device is %q; use cpu or npu", f.device)
	case f.device == "cpu" && f.library != "":
		return nil, usagef("--library applies only to NPUs; add --device npu")
	case f.device == "cpu" && f.faults != "":
		return nil, usagef("--faults applies only to the software NPU; add --device npu")
	case f.device == "cpu":
		return []*demo.NPU{nil}, nil
	case *plane != "auto":
		return nil, usagef("--plane %s moves only host memory; leave out --plane with --device npu", *plane)
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
		faultyNPU, err := n.WithFaults(faults)
		if err != nil {
			return nil, usageError{err}
		}
		npus = append(npus, faultyNPU)
	}
	return npus, nil
}

// addNPUHint adds to an error the hint to use the software NPU, unless the user has named a library.
func addNPUHint(err error, n *demo.NPU) error {
	if n == nil || n.Library != "" {
		return err
	}
	return fmt.Errorf("%w\nwithout an NPU, build the software NPU with make softnpu and give the path of the library as "+
		"--library", err)
}
