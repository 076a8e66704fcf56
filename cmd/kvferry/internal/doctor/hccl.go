package doctor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// HCCL is what was found of the library that moves pages between NPUs.
type HCCL struct {
	Failed error // why there is nothing else
	Info   comm.Info
}

// What one registration takes where memory is registered with each communicator, in bytes.
const (
	exchangeDeviceMax = 64 << 30
	exchangeHostMax   = 1 << 40
)

// The ports of the host that root info is handed around by, unless HCCL_IF_BASE_PORT moves them.
const (
	basePort      = 60000
	basePortCount = 32
)

// hccl looks at the library. Wanted is whether the configuration has transfer_channel hccl; it may be nil.
func (m Machine) hccl(s *Section, h HCCL, cfg *config.Config) {
	wanted := cfg != nil && cfg.Channel == config.ChannelHCCL
	if h.Failed != nil {
		verdict := Warning
		if wanted {
			verdict = Problem
		}
		if missed := (*comm.LoadError)(nil); errors.As(h.Failed, &missed) {
			s.add("library", "none; "+attempts(missed.Tried), verdict, "install CANN 8.2 or later and source its set_env.sh, or name the library in hccl.library or "+comm.LibraryVariable+": pages in device memory travel by it")
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
}

// sequence tells how memory is made known to peers, and what bounds it there.
func (m Machine) sequence(s *Section, h HCCL, cfg *config.Config) {
	if h.Info.Sequence == comm.Global {
		s.ok("sequence", "%v", h.Info.Sequence)
		return
	}
	s.note("sequence", fmt.Sprintf("%v, %s of device memory and %s of host memory at most in one pool", h.Info.Sequence, size(exchangeDeviceMax), size(exchangeHostMax)),
		"install CANN 8.3 or later, which registers memory once for all peers")
	if cfg == nil {
		return
	}
	if cfg.HCCL.Sequence == config.SequenceGlobal {
		s.problem("hccl.sequence", "global, which this library has not", "leave hccl.sequence out, or install CANN 8.3 or later")
	}
	device, host := cfg.BufferBytes, cfg.HostBytes
	if cfg.Device.Kind == config.DeviceCPU {
		device, host = 0, device
	}
	if device > exchangeDeviceMax || host > exchangeHostMax {
		s.problem("pool", size(max(device, host))+" in one registration", "make pd_buffer_size smaller, or install CANN 8.3 or later")
	}
	if cfg.HCCL.Bootstrap == config.BootstrapRootInfo {
		m.rootInfoPorts(s)
	}
}

// rootInfoPorts looks whether the system may give the ports away that root info is handed around by.
func (m Machine) rootInfoPorts(s *Section) {
	base := basePort
	if n, err := strconv.Atoi(m.Env("HCCL_IF_BASE_PORT")); err == nil && n > 0 && n <= math.MaxUint16-basePortCount {
		base = n
	}
	for port := base; port < base+basePortCount; port++ {
		if m.ephemeral(uint16(port)) {
			ports := fmt.Sprintf("%d-%d", base, base+basePortCount-1)
			s.note("root info's ports", ports+" are partly within net.ipv4.ip_local_port_range", "sysctl net.ipv4.ip_local_reserved_ports="+ports+", or move them with HCCL_IF_BASE_PORT")
			return
		}
	}
}

// retries tells how long NICs go on trying, which is what leases rest on.
func retries(s *Section, i comm.Info) {
	s.ok("HCCL_RDMA_TIMEOUT", "%v", i.RDMATimeout)
	s.ok("HCCL_RDMA_RETRY_CNT", "%v", i.RDMARetries)
}
