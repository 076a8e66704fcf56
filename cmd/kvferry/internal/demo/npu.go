package demo

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An NPU describes a replay whose pages are in the memory of Ascend NPUs, and the libraries that drive the NPUs.
type NPU struct {
	// Library is the path of AscendCL; if it is empty, the nodes search for AscendCL. The library of the software NPU
	// is also the HCCL library.
	Library  string
	software bool
	faults   *Faults // nil: no faults are injected
}

// NewNPU returns the NPU of a library. It reads the library's symbols to find out whether the library is the software
// NPU, because only the software NPU accepts settings and faults and writes reports. NewNPU fails if the file is not a
// library.
func NewNPU(library string) (*NPU, error) {
	n := &NPU{Library: library}
	if library == "" {
		return n, nil
	}
	// The path may be relative to the folder of this process, and nodes run in folders of their own.
	path, err := filepath.Abs(library)
	if err != nil {
		return nil, err
	}
	n.Library = path
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the library %s: %w", library, err)
	}
	defer func() { _ = f.Close() }() // The file was only read.
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("the library %s: %w", library, err)
	}
	for _, s := range symbols {
		n.software = n.software || s.Name == "cannemu_control" && s.Section != elf.SHN_UNDEF
	}
	return n, nil
}

// WithFaults returns a copy of the NPU that injects the faults. It fails unless n is the software NPU.
func (n *NPU) WithFaults(f *Faults) (*NPU, error) {
	if !n.software {
		return nil, fmt.Errorf("--faults needs the software NPU: build it with make softnpu, and give its library with --library")
	}
	faulty := *n
	faulty.faults = f
	return &faulty, nil
}

// SupportedModes returns the modes to play with this NPU, which are the modes in which its faults can occur. If n is
// nil, there is no offload, because the prefill node's pool is in host memory in every mode.
func (n *NPU) SupportedModes(all []Mode) []Mode {
	switch {
	case n == nil:
		return slices.DeleteFunc(slices.Clone(all), func(m Mode) bool { return m == PullDelayOffload })
	case n.faults == nil:
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(m Mode) bool { return !n.faults.appliesTo(m) })
}

// A linkKind is the kind of link between the NPUs of one run.
type linkKind int

const (
	overHCCS   linkKind = iota // all NPUs are in one server
	overRoCE                   // each NPU is in a server of its own
	roceInside                 // all NPUs are in one server and use RoCE, because HCCS cannot write to host memory
)

func (l linkKind) String() string { return [...]string{"HCCS", "RoCE", "RoCE within a server"}[l] }

func (m Mode) linkKind() linkKind {
	switch m {
	case Push, P2PPush:
		return overHCCS
	case Pull, PullDelay, P2PPull, P2PArena, P2PDelay:
		return overRoCE
	case PullDelayOffload, Layerwise:
		return roceInside
	case PushReg: // This mode is not played with NPUs.
	}
	panic("BUG: a mode without a link: " + string(m))
}

// npuCount is the number of devices, one for each node.
const npuCount = 1 + decodeNodes

// kvferryLines returns the lines that a node on the NPU with the given number has below extra_config.kvferry.
func (n *NPU) kvferryLines(m Mode, place int) string {
	var b strings.Builder
	if n.Library != "" {
		fmt.Fprintf(&b, "    npu: {library: %q}\n", n.Library)
	}
	fmt.Fprintf(&b, "    hccl:\n      host: %s\n      device_port: %d\n", host, 16666+place)
	if !n.software {
		return b.String() // Real NPUs have addresses and servers of their own.
	}
	server := 0
	if m.linkKind() == overRoCE {
		server = place
	}
	// With these timeouts, the loss of a link is detected after 0.3 s and its pages are then safe. The software NPU has
	// no network that could be slower.
	fmt.Fprintf(&b,
		"      library: %q\n      server_id: server-%d\n      device_ip: 192.0.2.%d\n      rdma_timeout: 14\n      "+
			"rdma_retry_cnt: 3\n      transfer_timeout: 3\n",
		n.Library, server, place+1)
	return b.String()
}

// npuDir returns the folder through which the software NPUs of a run communicate, and into which they write reports.
func npuDir(dir string) string { return filepath.Join(dir, "npu") }

// processEnv returns a function that gives the environment of each incarnation of a node's process.
func (n *NPU) processEnv(m Mode, name string, place int, dir string, s shape) func(incarnation int) []string {
	linkEnv := []string{"HCCL_INTRA_ROCE_ENABLE=0"}
	if m.linkKind() == roceInside {
		linkEnv = []string{"HCCL_INTRA_ROCE_ENABLE=1", "HCCL_INTRA_PCIE_ENABLE=0"}
	}
	return func(incarnation int) []string {
		env := slices.Clone(linkEnv)
		if !n.software {
			return env
		}
		return append(env, "CANNEMU_DIR="+npuDir(dir), "CANNEMU_REPORT="+npuDir(dir), "CANNEMU_LOG="+npuLogPath(dir, name, incarnation),
			fmt.Sprintf("CANNEMU_DEVICES=%d", npuCount), fmt.Sprintf("CANNEMU_DEVICE_MEMORY=%d", 2*s.poolBytes()),
			"CANNEMU_FAULTS="+n.faults.rulesFor(m, name, place, incarnation, s))
	}
}

func npuLogPath(dir, name string, incarnation int) string {
	return filepath.Join(npuDir(dir), fmt.Sprintf("%s-%d.log", name, incarnation))
}

// makeReportDir creates the folder that npuDir names.
func (n *NPU) makeReportDir(dir string) error {
	if err := os.Mkdir(npuDir(dir), 0o700); err != nil {
		return fmt.Errorf("make a folder for the software NPUs: %w", err)
	}
	return nil
}
