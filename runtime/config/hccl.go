package config

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/protocol"
)

// NPU is how the driver of Ascend NPUs is found.
type NPU struct {
	// Library is the path of AscendCL; empty lets the driver look where CANN puts it.
	Library string
}

// HCCL is how the data plane between Ascend NPUs runs. Without transfer_channel hccl, none of it has an effect, and the
// lists by rank
// are empty.
type HCCL struct {
	// Library is the path of HCCL; empty lets the driver look where CANN puts it.
	Library   string
	Sequence  Sequence
	Bootstrap Bootstrap

	// ServerID names this host in rank tables: NPUs whose servers have one name are taken to be in one host. Empty leaves
	// it to the driver.
	ServerID string
	// DeviceIPs are the RoCE addresses of the ranks' NPUs; empty leaves them to be found in /etc/hccn.conf.
	DeviceIPs []netip.Addr
	// DevicePorts are the ports on those; empty is DevicePortDefault for every rank.
	DevicePorts []uint16
	// Host is where the plane's own channel listens and what it advertises; PeerHost if the file has none.
	Host string
	// Ports are its ports by rank; empty lets the system choose.
	Ports []uint16

	// RDMATimeout is the exponent of the time that a NIC gives one try, 4.096 us * 2^RDMATimeout, and RDMARetries how many
	// tries follow the
	// first. They bound how long a NIC goes on with what was aborted. The variables HCCL_RDMA_TIMEOUT and
	// HCCL_RDMA_RETRY_CNT go before them.
	RDMATimeout, RDMARetries uint32
	// TrafficClass and ServiceLevel are those of RoCE; LeftToHCCL where the file has none.
	TrafficClass, ServiceLevel uint32

	// TransferTimeout bounds one transfer; 0 lets the driver derive it from what RDMATimeout and RDMARetries give.
	TransferTimeout time.Duration
	// PrepareTimeout bounds each phase of connecting a communicator; the library takes whole seconds.
	PrepareTimeout time.Duration
	// RebuildTries is how many times in a row a communicator may fail to be rebuilt before its link is lost.
	RebuildTries uint32
	// Window is how many batches of one link are in flight, Descriptors how many pages or runs of pages a batch has at
	// most, where the
	// library does not take fewer, and Links how many communicators a node has at most.
	Window, Descriptors, Links uint32
}

// LeftToHCCL as a traffic class or service level leaves it to HCCL: to HCCL_RDMA_TC and HCCL_RDMA_SL, and to its
// defaults without them. It is the value
// that the library itself takes for "not set".
const LeftToHCCL = math.MaxUint32

// DevicePortDefault is where HCCL listens on an NPU if nobody says.
const DevicePortDefault = 16666

// A Sequence is one of HCCL's two ways to give one-sided access to memory.
type Sequence uint8

// The sequences.
const (
	SequenceAuto     Sequence = iota // global where the library has it, else exchange
	SequenceGlobal                   // memory registered once and bound to communicators
	SequenceExchange                 // memory registered with each communicator, descriptors exchanged, access enabled
)

// String returns the sequence as hccl.sequence has it.
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

// A Bootstrap is how the two ends of a communicator learn of each other.
type Bootstrap uint8

// The bootstraps.
const (
	BootstrapRankTable Bootstrap = iota // both ends write the same table
	BootstrapRootInfo                   // one end makes a root info and the other is told it; SequenceExchange only
)

// String returns the bootstrap as hccl.bootstrap has it.
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

// NeedsNPU reports whether the node cannot run without an Ascend NPU and its libraries: its pool lies there, or its
// bytes are moved by one.
func (c *Config) NeedsNPU() bool { return c.Device.Kind == DeviceNPU || c.Channel == ChannelHCCL }

// HCCLEndpoint returns where the channel of rank's HCCL plane listens. Port 0 lets the system choose; false means that
// there is a list of ports and that it does not reach rank.
func (c *Config) HCCLEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.HCCL.Ports) == 0 {
		return protocol.Endpoint{Host: c.HCCL.Host}, rank >= 0
	}
	return endpoint(c.HCCL.Host, c.HCCL.Ports, rank)
}

// DeviceIP returns the RoCE address of rank's NPU, the zero Addr where it is to be found in /etc/hccn.conf. False means
// that
// there is a list of addresses and that it does not reach rank.
func (c *Config) DeviceIP(rank int) (netip.Addr, bool) {
	if ips := c.HCCL.DeviceIPs; len(ips) > 0 && (rank < 0 || rank >= len(ips)) {
		return netip.Addr{}, false
	} else if len(ips) > 0 {
		return ips[rank], true
	}
	return netip.Addr{}, rank >= 0
}

// DevicePort returns the port that HCCL uses on rank's NPU, or false if there is a list of ports that does not reach
// rank.
func (c *Config) DevicePort(rank int) (uint16, bool) {
	if len(c.HCCL.DevicePorts) == 0 {
		return DevicePortDefault, rank >= 0
	}
	e, ok := endpoint("", c.HCCL.DevicePorts, rank)
	return e.Port, ok
}
