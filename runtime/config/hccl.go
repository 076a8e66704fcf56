package config

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

// NPU has the parameters of the driver of Ascend NPUs.
type NPU struct {
	// Library is the path of AscendCL. If empty, the driver searches where CANN installs the library.
	Library string
}

// HCCL has the parameters of the data plane between Ascend NPUs. Without transfer_channel hccl, the fields have no
// effect and the lists by rank are empty.
type HCCL struct {
	// Library is the path of HCCL. If empty, the driver searches where CANN installs the library.
	Library   string
	Sequence  Sequence
	Bootstrap Bootstrap

	// ServerID names this host in rank tables. HCCL treats NPUs with the same server name as NPUs of the same host. If
	// empty, the driver chooses.
	ServerID string
	// DeviceIPs are the RoCE addresses of the NPUs, by rank. If empty, the addresses are read from /etc/hccn.conf.
	DeviceIPs []netip.Addr
	// DevicePorts are the ports at DeviceIPs, by rank. If empty, every rank uses DevicePortDefault.
	DevicePorts []uint16
	// Host is the host where the plane's own channel listens, and the host that is advertised; PeerHost if the file
	// has none.
	Host string
	// Ports are the ports of the plane's own channel, by rank; empty lets the system choose.
	Ports []uint16

	// RDMATimeout is the exponent of the time that a NIC waits in a try, 4.096 us * 2^RDMATimeout. RDMARetries is the
	// number of retries. Together both values bound how long a NIC continues an aborted transfer. The environment
	// variables HCCL_RDMA_TIMEOUT and HCCL_RDMA_RETRY_CNT take precedence.
	RDMATimeout, RDMARetries uint32
	// TrafficClass and ServiceLevel are the RoCE settings; HCCLDefault if the file has none.
	TrafficClass, ServiceLevel uint32

	// TransferTimeout bounds a transfer; 0 lets the driver derive the bound from RDMATimeout and RDMARetries.
	TransferTimeout time.Duration
	// PrepareTimeout bounds each phase of connecting a communicator; the library takes whole seconds.
	PrepareTimeout time.Duration
	// RebuildTries limits the number of times in a row that the rebuild of a communicator may fail before the link is
	// lost.
	RebuildTries uint32
	// Window is the maximum number of batches of a link in flight. Descriptors is the maximum number of pages or runs
	// of pages in a batch, if the library does not take fewer. Links is the maximum number of communicators of a node.
	Window, Descriptors, Links uint32
}

// HCCLDefault as a traffic class or service level leaves the choice to HCCL, which uses HCCL_RDMA_TC and HCCL_RDMA_SL,
// or the defaults of the library. HCCL itself uses this value for "not set".
const HCCLDefault = math.MaxUint32

// DevicePortDefault is the port on which HCCL listens on an NPU if no port is configured.
const DevicePortDefault = 16666

// A Sequence is a way in which HCCL gives one-sided access to memory.
type Sequence uint8

// The sequences.
const (
	SequenceAuto     Sequence = iota // SequenceGlobal if the library supports it, else SequenceExchange
	SequenceGlobal                   // memory registered once and bound to communicators
	SequenceExchange                 // memory registered with each communicator, descriptors exchanged, access enabled
)

// String returns the sequence in the form of the key hccl.sequence.
func (s Sequence) String() string {
	switch s {
	case SequenceAuto:
		return "auto"
	case SequenceGlobal:
		return "global"
	case SequenceExchange:
		return "exchange"
	default:
		return fmt.Sprintf("sequence(%d)", uint8(s))
	}
}

// A Bootstrap is how the two ends of a communicator exchange their addresses.
type Bootstrap uint8

// The bootstraps.
const (
	BootstrapRankTable Bootstrap = iota // both ends write the same table
	BootstrapRootInfo                   // one end creates a root info and sends it to the other end; SequenceExchange only
)

// String returns the bootstrap in the form of the key hccl.bootstrap.
func (b Bootstrap) String() string {
	switch b {
	case BootstrapRankTable:
		return "rank_table"
	case BootstrapRootInfo:
		return "root_info"
	default:
		return fmt.Sprintf("bootstrap(%d)", uint8(b))
	}
}

// NeedsNPU reports whether the node requires an Ascend NPU and the libraries of CANN, because the NPU holds the pool
// or moves the bytes.
func (c *Config) NeedsNPU() bool { return c.Device.Kind == DeviceNPU || c.Channel == ChannelHCCL }

// HCCLEndpoint returns the address at which the channel of a rank's HCCL plane listens. Port 0 lets the system choose.
// The result is false if there is a list of ports that has no entry for the rank.
func (c *Config) HCCLEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.HCCL.Ports) == 0 {
		return protocol.Endpoint{Host: c.HCCL.Host}, rank >= 0
	}
	return rankEndpoint(c.HCCL.Host, c.HCCL.Ports, rank)
}

// DeviceIP returns the RoCE address of a rank's NPU, or the zero Addr if the address is to be read from
// /etc/hccn.conf. The result is false if there is a list of addresses that has no entry for the rank.
func (c *Config) DeviceIP(rank int) (netip.Addr, bool) {
	if ips := c.HCCL.DeviceIPs; len(ips) > 0 && (rank < 0 || rank >= len(ips)) {
		return netip.Addr{}, false
	} else if len(ips) > 0 {
		return ips[rank], true
	}
	return netip.Addr{}, rank >= 0
}

// DevicePort returns the port that HCCL uses on a rank's NPU. The result is false if there is a list of ports that has
// no entry for the rank.
func (c *Config) DevicePort(rank int) (uint16, bool) {
	if len(c.HCCL.DevicePorts) == 0 {
		return DevicePortDefault, rank >= 0
	}
	e, ok := rankEndpoint("", c.HCCL.DevicePorts, rank)
	return e.Port, ok
}
