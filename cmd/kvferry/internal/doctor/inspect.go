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
	// Wants is the configuration that is to run on the machine; zero if there is none.
	Wants Wants
	// Library is the AscendCL library to load, and takes precedence over the library in the configuration. If both are
	// empty, doctor searches for the library as a node does.
	Library string
	// CopyBytes is the size in bytes of each measured copy, which is made four times. The measurement takes two buffers of
	// this size from each device, and two from host memory. A write over libnixl has at most 64 MiB.
	CopyBytes uint64
}

// Inspect runs all checks on the machine and returns the report. Cancelling the context cuts the measurements short.
func Inspect(ctx context.Context, m Machine, o Options) Report {
	cfg := o.Wants.Config
	npus := m.NPUs(ctx, o.libraries(), o.CopyBytes)

	program := Section{Name: "program"}
	program.ok("go", "%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)

	host := Section{Name: "host"}
	m.kernel(&host)
	m.boot(&host)
	m.processors(&host)
	m.limits(&host, cfg, npus.Failed == nil)

	memory := Section{Name: "memory"}
	m.memory(&memory)
	m.hostSpeed(&memory, o.CopyBytes)

	network := Section{Name: "network"}
	m.network(&network)

	configuration := Section{Name: "configuration"}
	m.configuration(&configuration, o.Wants, npus)

	npu := Section{Name: "npus"}
	m.npus(&npu, npus, o.Wants.npus() || o.Library != "")
	nixl := Section{Name: "nixl"}
	m.nixl(&nixl, m.lookAtNIXL(ctx, o), cfg, o.CopyBytes)
	sections := []Section{program, host, memory, network, configuration, nixl, npu}
	if npus.Failed == nil {
		node := commonNode(m.cards())
		for _, d := range npus.Devices {
			sections = append(sections, m.device(d, node, o.CopyBytes))
		}
		hccl, pairs := Section{Name: "hccl"}, Section{Name: "links"}
		m.hccl(&hccl, npus.HCCL, cfg)
		links(&pairs, npus)
		sections = append(sections, hccl, pairs)
	}
	return newReport(sections...)
}

// inspectNIXL tests libnixl with the library and the transports that the configuration gives.
func (m Machine) lookAtNIXL(ctx context.Context, o Options) NIXL {
	library, transports := libnixl.Options{}, ""
	if c := o.Wants.Config; c != nil {
		library.Library, transports = c.NIXL.Library, c.NIXL.Transports
	}
	return m.NIXL(ctx, library, transports, o.CopyBytes)
}

// libraries returns the libraries to load: the library of the options, or else the libraries of the configuration.
func (o Options) libraries() Libraries {
	l := Libraries{ACL: o.Library}
	if c := o.Wants.Config; c != nil {
		l.ACL = cmp.Or(o.Library, c.NPU.Library)
		l.HCCL = comm.Options{Library: c.HCCL.Library, RDMATimeout: int(c.HCCL.RDMATimeout),
			RDMARetries: int(c.HCCL.RDMARetries)}
	}
	return l
}
