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
	Failed error // why the other fields are empty
	Info   comm.Info
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

// hccl checks the library. The configuration may be nil.
func (m Machine) hccl(s *Section, h HCCL, cfg *config.Config) {
	wanted := cfg != nil && cfg.Channel == config.ChannelHCCL
	if h.Failed != nil {
		verdict := Warning
		if wanted {
			verdict = Problem
		}
		if missed := (*comm.LoadError)(nil); errors.As(h.Failed, &missed) {
			s.add("library", "none; "+attempts(missed.Attempts), verdict,
				"install CANN 8.2 or later and source its set_env.sh, or name the library in hccl.library or "+
					comm.LibraryVariable+": pages in device memory travel by it")
		} else {
			s.add("library", h.Failed.Error(), verdict, "correct what it names, or unset it")
		}
		return
	}
	s.ok("library", "%s", h.Info.Library)
	if h.Info.CANN != "" {
		s.ok("cann", "%s", h.Info.CANN)
	}
	m.sequence(s, h, cfg)
	if len(h.Info.Missing) != 0 {
		s.note("missing functions", strings.Join(h.Info.Missing, ", "), lackedRemedy)
	}
	if len(h.Info.Signals) != 0 {
		signalHandlers(s, h.Info.Signals)
	}
	retries(s, h.Info)
	if bound := hccl.ResidualOf(comm.RoCE, h.Info); wanted && cfg.HCCL.TransferTimeout != 0 &&
		cfg.HCCL.TransferTimeout < bound {
		s.note("hccl.transfer_timeout", cfg.HCCL.TransferTimeout.String(),
			fmt.Sprintf("leave it out, or give more than %v: over RoCE transfers are given up that the NIC would still bring "+
				"to an end", bound.Round(time.Millisecond)))
	}
}

// checkSequence reports how the library makes memory known to peers, and checks the limits that follow for a pool.
func (m Machine) sequence(s *Section, h HCCL, cfg *config.Config) {
	if h.Info.Sequence == comm.Global {
		s.ok("sequence", "%v", h.Info.Sequence)
		return
	}
	s.note("sequence", fmt.Sprintf("%v, %s of device memory and %s of host memory at most in one pool", h.Info.Sequence,
		size(exchangeDeviceMax), size(exchangeHostMax)),
		"install CANN 8.3 or later, which registers memory once for all peers")
	if cfg == nil {
		return
	}
	if cfg.HCCL.Sequence == config.SequenceGlobal {
		s.problem("hccl.sequence", "global, which this library has not",
			"leave hccl.sequence out, or install CANN 8.3 or later")
	}
	most := uint64(exchangeDeviceMax)
	if cfg.PoolDevice().Kind == config.DeviceCPU {
		most = exchangeHostMax
	}
	if cfg.BufferBytes > most {
		s.problem("pool", size(cfg.BufferBytes)+" in one registration",
			"make "+cfg.PoolKey()+" smaller, or install CANN 8.3 or later")
	}
	if cfg.HCCL.Bootstrap == config.BootstrapRootInfo {
		m.rootInfoPorts(s)
	}
}

// rootInfoPorts checks whether the system may assign the ports for root info to other connections.
func (m Machine) rootInfoPorts(s *Section) {
	base := basePort
	if n, err := strconv.Atoi(m.Env("HCCL_IF_BASE_PORT")); err == nil && n > 0 && n <= math.MaxUint16-basePortCount {
		base = n
	}
	for port := base; port < base+basePortCount; port++ {
		if m.ephemeral(uint16(port)) {
			ports := fmt.Sprintf("%d-%d", base, base+basePortCount-1)
			s.note("root info's ports", ports+" are partly within net.ipv4.ip_local_port_range",
				"sysctl net.ipv4.ip_local_reserved_ports="+ports+", or move them with HCCL_IF_BASE_PORT")
			return
		}
	}
}

// residualLong is the longest time that a lost link may keep its pages without a note in the report.
const residualLong = 5 * time.Second

// checkRetries reports how long NICs continue a transfer that was given up. The pages of the transfer must not be used
// during that time.
func retries(s *Section, i comm.Info) {
	roce := hccl.ResidualOf(comm.RoCE, i)
	value := fmt.Sprintf("%v over RoCE, %v over HCCS", roce.Round(time.Millisecond), hccl.ResidualOf(comm.HCCS, i))
	switch {
	case roce <= residualLong:
		s.ok("residual bound", "%s", value)
	case i.RDMATimeout.From == comm.FromLibrary:
		s.note("residual bound", value,
			"set HCCL_RDMA_TIMEOUT=15 where the process starts: HCCL was loaded before kvferry could, and pages wait so long "+
				"after a lost link")
	default:
		s.note("residual bound", value,
			"lower HCCL_RDMA_TIMEOUT (15 makes it one second), or hccl.rdma_timeout where the variable is not set: pages wait "+
				"so long after a lost link")
	}
	s.ok("HCCL_RDMA_TIMEOUT", "%v", i.RDMATimeout)
	s.ok("HCCL_RDMA_RETRY_CNT", "%v", i.RDMARetries)
}
