package doctor

import (
	"cmp"
	"context"
	"runtime"

	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/libnixl"
)

// Options selects what Inspect checks.
type Options struct {
	// Target is the configuration that is to run on the machine; zero if there is none.
	Target Target
	// Library is the AscendCL library to load, and takes precedence over the library in the configuration. If both are
	// empty, doctor searches for the library as a node does.
	Library string
	// CopyBytes is the size in bytes of each measured copy, which is made four times. The measurement takes two buffers
	// of this size from each device, and two from host memory. A write over libnixl has at most 64 MiB.
	CopyBytes uint64
}

// Inspect runs all checks on the machine and returns the report. Cancelling the context cuts the measurements short.
func Inspect(ctx context.Context, m Machine, o Options) Report {
	cfg := o.Target.Config
	npus := m.NPUs(ctx, o.libraryPaths(), o.CopyBytes)

	program := Section{Name: "program"}
	program.addOK("go", "%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)

	host := Section{Name: "host"}
	m.checkKernel(&host)
	m.checkBoot(&host)
	m.checkCores(&host)
	m.checkLimits(&host, cfg, npus.Err == nil)

	memory := Section{Name: "memory"}
	m.checkMemory(&memory)
	m.checkHostCopy(&memory, o.CopyBytes)

	network := Section{Name: "network"}
	m.checkNetwork(&network)

	configuration := Section{Name: "configuration"}
	m.checkConfig(&configuration, o.Target, npus)

	npu := Section{Name: "npus"}
	m.checkNPUs(&npu, npus, o.Target.needsNPUs() || o.Library != "")
	nixl := Section{Name: "nixl"}
	m.checkNIXL(&nixl, m.inspectNIXL(ctx, o), cfg, o.CopyBytes)
	sections := []Section{program, host, memory, network, configuration, nixl, npu}
	if npus.Err == nil {
		node := commonNode(m.findCards())
		for _, d := range npus.Devices {
			sections = append(sections, m.checkDevice(d, node, o.CopyBytes))
		}
		hccl, pairs := Section{Name: "hccl"}, Section{Name: "links"}
		m.checkHCCL(&hccl, npus.HCCL, cfg)
		checkLinks(&pairs, npus)
		sections = append(sections, hccl, pairs)
	}
	return newReport(sections...)
}

// inspectNIXL tests libnixl with the library and the transports that the configuration gives.
func (m Machine) inspectNIXL(ctx context.Context, o Options) NIXL {
	library, transports := libnixl.Options{}, ""
	if c := o.Target.Config; c != nil {
		library.Library, transports = c.NIXL.Library, c.NIXL.Transports
	}
	return m.NIXL(ctx, library, transports, o.CopyBytes)
}

// libraryPaths returns the libraries to load: the library of the options, or else the libraries of the configuration.
func (o Options) libraryPaths() Libraries {
	l := Libraries{ACL: o.Library}
	if c := o.Target.Config; c != nil {
		l.ACL = cmp.Or(o.Library, c.NPU.Library)
		l.HCCL = comm.Options{Library: c.HCCL.Library, RDMATimeout: int(c.HCCL.RDMATimeout),
			RDMARetries: int(c.HCCL.RDMARetries)}
	}
	return l
}
