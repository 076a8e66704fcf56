package doctor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// HCCL is the report of the library that moves pages between NPUs.
type HCCL struct {
	Err  error // why the other fields are empty
	Info comm.Info
}

// The bytes that one registration takes if memory is registered with each communicator.
const (
	exchangeDeviceMax = 64 << 30
	exchangeHostMax   = 1 << 40
)

// The host's ports over which root info is exchanged, unless HCCL_IF_BASE_PORT moves them.
const (
	basePort      = 60000
	basePortCount = 32
)

// checkHCCL checks the library. The configuration may be nil.
func (m Machine) checkHCCL(s *Section, h HCCL, cfg *config.Config) {
	wanted := cfg != nil && cfg.Channel == config.ChannelHCCL
	if h.Err != nil {
		verdict := Warning
		if wanted {
			verdict = Problem
		}
		if loadErr := (*comm.LoadError)(nil); errors.As(h.Err, &loadErr) {
			s.addRow("library", "none; "+formatAttempts(loadErr.Attempts), verdict,
				"install CANN 8.2 or later and source its set_env.sh, or name the library in hccl.library or "+
					comm.LibraryVariable+": HCCL moves pages in device memory")
		} else {
			s.addRow("library", h.Err.Error(), verdict, "correct the setting that the error names, or unset it")
		}
		return
	}
	s.addOK("library", "%s", h.Info.Library)
	if h.Info.CANN != "" {
		s.addOK("cann", "%s", h.Info.CANN)
	}
	m.checkSequence(s, h, cfg)
	if len(h.Info.Missing) != 0 {
		s.addNote("missing functions", strings.Join(h.Info.Missing, ", "), missingRemedy)
	}
	if len(h.Info.Signals) != 0 {
		addSignalHandlers(s, h.Info.Signals)
	}
	checkRetries(s, h.Info)
	if bound := hccl.ResidualOf(comm.RoCE, h.Info); wanted && cfg.HCCL.TransferTimeout != 0 &&
		cfg.HCCL.TransferTimeout < bound {
		s.addNote("hccl.transfer_timeout", cfg.HCCL.TransferTimeout.String(),
			fmt.Sprintf("leave it out, or give more than %v: otherwise transfers over RoCE are given up that the NIC would still "+
				"complete", bound.Round(time.Millisecond)))
	}
}

// checkSequence reports how the library makes memory known to peers, and checks the limits that follow for a pool.
func (m Machine) checkSequence(s *Section, h HCCL, cfg *config.Config) {
	if h.Info.Sequence == comm.Global {
		s.addOK("sequence", "%v", h.Info.Sequence)
		return
	}
	s.addNote("sequence", fmt.Sprintf("%v; a pool has at most %s of device memory or %s of host memory", h.Info.Sequence,
		formatSize(exchangeDeviceMax), formatSize(exchangeHostMax)),
		"install CANN 8.3 or later, which registers memory once for all peers")
	if cfg == nil {
		return
	}
	if cfg.HCCL.Sequence == config.SequenceGlobal {
		s.addProblem("hccl.sequence", "global, which this library does not support",
			"leave hccl.sequence out, or install CANN 8.3 or later")
	}
	limit := uint64(exchangeDeviceMax)
	if cfg.PoolDevice().Kind == config.DeviceCPU {
		limit = exchangeHostMax
	}
	if cfg.BufferBytes > limit {
		s.addProblem("pool", formatSize(cfg.BufferBytes)+" in one registration",
			"make "+cfg.PoolKey()+" smaller, or install CANN 8.3 or later")
	}
	if cfg.HCCL.Bootstrap == config.BootstrapRootInfo {
		m.checkRootInfoPorts(s)
	}
}

// checkRootInfoPorts checks whether the system may assign the ports for root info to other connections.
func (m Machine) checkRootInfoPorts(s *Section) {
	base := basePort
	if n, err := strconv.Atoi(m.Env("HCCL_IF_BASE_PORT")); err == nil && n > 0 && n <= math.MaxUint16-basePortCount {
		base = n
	}
	for port := base; port < base+basePortCount; port++ {
		if m.isEphemeral(uint16(port)) {
			ports := fmt.Sprintf("%d-%d", base, base+basePortCount-1)
			s.addNote("root info's ports", ports+" are partly within net.ipv4.ip_local_port_range",
				"sysctl net.ipv4.ip_local_reserved_ports="+ports+", or move them with HCCL_IF_BASE_PORT")
			return
		}
	}
}

// residualMax is the longest time that a lost link may keep its pages without a note in the report.
const residualMax = 5 * time.Second

// checkRetries reports how long NICs continue a transfer that was given up. The pages of the transfer must not be used
// during that time.
func checkRetries(s *Section, i comm.Info) {
	roce := hccl.ResidualOf(comm.RoCE, i)
	value := fmt.Sprintf("%v over RoCE, %v over HCCS", roce.Round(time.Millisecond), hccl.ResidualOf(comm.HCCS, i))
	switch {
	case roce <= residualMax:
		s.addOK("residual bound", "%s", value)
	case i.RDMATimeout.From == comm.FromLibrary:
		s.addNote("residual bound", value,
			"set HCCL_RDMA_TIMEOUT=15 in the environment of the process, because HCCL was loaded before kvferry could set it: after a "+
				"lost link, pages stay blocked for this time")
	default:
		s.addNote("residual bound", value,
			"lower HCCL_RDMA_TIMEOUT (15 means one second), or hccl.rdma_timeout if the variable is not set: after a lost link, pages "+
				"stay blocked for this time")
	}
	s.addOK("HCCL_RDMA_TIMEOUT", "%v", i.RDMATimeout)
	s.addOK("HCCL_RDMA_RETRY_CNT", "%v", i.RDMARetries)
}
