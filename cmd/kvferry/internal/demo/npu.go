package demo

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NPU says that pages lie in the memory of Ascend NPUs, and whose libraries drive them.
type NPU struct {
	// Library is the path of AscendCL, "" leaves the search to the nodes. The software NPU is HCCL as well.
	Library  string
	software bool
	faults   *Faults // nil: none
}

// NewNPU looks at the library: only the software NPU takes settings and faults, and reports.
func NewNPU(library string) (*NPU, error) {
	n := &NPU{Library: library}
	if library == "" {
		return n, nil
	}
	// Nodes run in other folders than a user may have named it from.
	path, err := filepath.Abs(library)
	if err != nil {
		return nil, err
	}
	n.Library = path
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the library %s: %w", library, err)
	}
	defer func() { _ = f.Close() }() // It was only read.
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("the library %s: %w", library, err)
	}
	for _, s := range symbols {
		n.software = n.software || s.Name == "cannemu_control" && s.Section != elf.SHN_UNDEF
	}
	return n, nil
}

// WithFaults is the same NPU with faults. Only the software NPU has any.
func (n *NPU) WithFaults(f *Faults) (*NPU, error) {
	if !n.software {
		return nil, fmt.Errorf("faults are the software NPU's: build it with make softnpu, and name its library")
	}
	with := *n
	with.faults = f
	return &with, nil
}

// In are the modes in which this NPU has something to show: those that its faults concern. Without an NPU, which is
// nil, there is no offload: the prefill's pool lies in host memory in each mode.
func (n *NPU) In(all []Mode) []Mode {
	switch {
	case n == nil:
		return slices.DeleteFunc(slices.Clone(all), func(m Mode) bool { return m == PullDelayOffload })
	case n.faults == nil:
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(m Mode) bool { return !n.faults.concern(m) })
}

// A link is what joins the NPUs of one run.
type link int

const (
	overHCCS   link = iota // all of one server
	overRoCE               // each of a server of its own
	roceInside             // all of one server, and RoCE all the same, since host memory is no target over HCCS
)

func (l link) String() string { return [...]string{"HCCS", "RoCE", "RoCE within a server"}[l] }

func (m Mode) link() link {
	switch m {
	case Push, P2PPush:
		return overHCCS
	case Pull, PullDelay, P2PPull, P2PArena, P2PDelay:
		return overRoCE
	case PullDelayOffload, Layerwise:
		return roceInside
	case PushReg: // No NPU plays it.
	}
	panic("BUG: a mode without a link: " + string(m))
}

// npus is how many devices there are: one for each node.
const npus = 1 + decoders

// own is what a node on the NPU of that place adds to its configuration, below extra_config.kvferry.
func (n *NPU) own(m Mode, place int) string {
	var b strings.Builder
	if n.Library != "" {
		fmt.Fprintf(&b, "    npu: {library: %q}\n", n.Library)
	}
	fmt.Fprintf(&b, "    hccl:\n      host: %s\n      device_port: %d\n", host, 16666+place)
	if !n.software {
		return b.String() // Addresses and servers are the machine's.
	}
	server := 0
	if m.link() == overRoCE {
		server = place
	}
	// A lost link is found, and its pages are safe, after 0.3 s: there is no network that could need longer.
	fmt.Fprintf(&b,
		"      library: %q\n      server_id: server-%d\n      device_ip: 192.0.2.%d\n      rdma_timeout: 14\n      "+
			"rdma_retry_cnt: 3\n      transfer_timeout: 3\n",
		n.Library, server, place+1)
	return b.String()
}

// room is the folder in which the software NPUs of a run meet and report.
func room(dir string) string { return filepath.Join(dir, "npu") }

// env is the environment of a node's process, in each of its lives.
func (n *NPU) env(m Mode, name string, place int, dir string, s shape) func(life int) []string {
	inside := []string{"HCCL_INTRA_ROCE_ENABLE=0"}
	if m.link() == roceInside {
		inside = []string{"HCCL_INTRA_ROCE_ENABLE=1", "HCCL_INTRA_PCIE_ENABLE=0"}
	}
	return func(life int) []string {
		env := slices.Clone(inside)
		if !n.software {
			return env
		}
		return append(env, "CANNEMU_DIR="+room(dir), "CANNEMU_REPORT="+room(dir), "CANNEMU_LOG="+logFile(dir, name, life),
			fmt.Sprintf("CANNEMU_DEVICES=%d", npus), fmt.Sprintf("CANNEMU_DEVICE_MEMORY=%d", 2*s.poolBytes()),
			"CANNEMU_FAULTS="+n.faults.rules(m, name, place, life, s))
	}
}

func logFile(dir, name string, life int) string {
	return filepath.Join(room(dir), fmt.Sprintf("%s-%d.log", name, life))
}

// prepare makes what the processes of a run need.
func (n *NPU) prepare(dir string) error {
	if err := os.Mkdir(room(dir), 0o700); err != nil {
		return fmt.Errorf("make a folder where software NPUs meet: %w", err)
	}
	return nil
}
