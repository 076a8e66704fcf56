package doctor

import (
	"context"
	"runtime"
)

// Options say what to look at.
type Options struct {
	// Wants is the configuration that is to run here; zero without one.
	Wants Wants
	// Library is the AscendCL library to load, before that of the configuration; empty for the search that a
	// node makes.
	Library string
	// CopyBytes is how much each measured copy moves, four times over. Two such buffers are taken of each
	// device, and two of host memory.
	CopyBytes uint64
	// Libzmq is the version of the linked library, empty without cgo.
	Libzmq string
}

// Inspect looks at everything. The context cuts the measurements short.
func Inspect(ctx context.Context, m Machine, o Options) Report {
	cfg, library := o.Wants.Config, o.Library
	if library == "" && cfg != nil {
		library = cfg.NPU.Library
	}
	npus := m.NPUs(ctx, library, o.CopyBytes)

	program := Section{Name: "program"}
	program.ok("go", "%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if o.Libzmq == "" {
		program.note("libzmq", "none: built without cgo, simulates but runs no nodes", "build with CGO_ENABLED=1 where libzmq is installed (make setup)")
	} else {
		program.ok("libzmq", "%s", o.Libzmq)
	}

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
	m.configuration(&configuration, o.Wants, o.Libzmq, npus)

	npu := Section{Name: "npus"}
	m.npus(&npu, npus, o.Wants.npus() || o.Library != "")
	sections := []Section{program, host, memory, network, configuration, npu}
	if npus.Failed == nil {
		node := commonNode(m.cards())
		for _, d := range npus.Devices {
			sections = append(sections, m.device(d, node, o.CopyBytes))
		}
	}
	return newReport(sections...)
}
