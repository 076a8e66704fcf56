package config

import (
	"github.com/kvferry/kvferry/protocol"
)

// RankCount returns the number of ranks that the port lists serve, or 0 for a sender without ports, which serves any
// number of ranks.
func (c *Config) RankCount() int {
	// All lists that are given have equal length.
	return max(len(c.InitPorts), len(c.AllocPorts), len(c.Pull.DonePorts), len(c.QueryPorts), len(c.Data.TCPPorts),
		len(c.Share.LookupPorts), len(c.HCCL.Ports), len(c.HCCL.DeviceIPs), len(c.HCCL.DevicePorts),
		len(c.NIXL.Ports), len(c.Operator.Ports))
}

// InitEndpoint returns the address at which a rank accepts handshakes, or false if the lists have no entry for the
// rank. Peers receive the address as text.
func (c *Config) InitEndpoint(rank int) (protocol.Endpoint, bool) {
	return rankEndpoint(c.PeerHost, c.InitPorts, rank)
}

// AllocEndpoint returns the address at which a rank accepts allocation requests, or false if the lists have no entry
// for the rank.
func (c *Config) AllocEndpoint(rank int) (protocol.Endpoint, bool) {
	return rankEndpoint(c.PeerHost, c.AllocPorts, rank)
}

// DoneEndpoint returns the address at which a sender's rank is notified that an offer has been read, or false if the
// rank accepts no notification: in push mode, at a receiver, and if the list has no entry for the rank. Receivers get
// the address as text (sender_done_url). In LMCache-Ascend, the text is also the sender's id.
func (c *Config) DoneEndpoint(rank int) (protocol.Endpoint, bool) {
	return rankEndpoint(c.PeerHost, c.Pull.DonePorts, rank)
}

// QueryEndpoint returns the address at which a receiver's rank accepts queries about chunks that may be recalled, or
// false if the rank accepts no queries, or the list has no entry for the rank.
func (c *Config) QueryEndpoint(rank int) (protocol.Endpoint, bool) {
	return rankEndpoint(c.PeerHost, c.QueryPorts, rank)
}

// LookupEndpoint returns the address at which a sharing rank accepts lookups of chunks, or false if the node does not
// share, or the list has no entry for the rank.
func (c *Config) LookupEndpoint(rank int) (protocol.Endpoint, bool) {
	return rankEndpoint(c.PeerHost, c.Share.LookupPorts, rank)
}

// TCPEndpoint returns the address at which a rank's TCP plane listens. Port 0 lets the system choose. It reports false
// if there is a list of ports that has no entry for the rank.
func (c *Config) TCPEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.Data.TCPPorts) == 0 {
		return protocol.Endpoint{Host: c.Data.TCPHost}, rank >= 0
	}
	return rankEndpoint(c.Data.TCPHost, c.Data.TCPPorts, rank)
}

func rankEndpoint(host string, ports []uint16, rank int) (protocol.Endpoint, bool) {
	if rank < 0 || rank >= len(ports) {
		return protocol.Endpoint{}, false
	}
	return protocol.Endpoint{Host: host, Port: ports[rank]}, true
}

// A boundPort is a port that a rank of a node binds.
type boundPort struct {
	at    protocol.Endpoint
	rank  int
	key   string // the key that lists the port
	label string // the name of the port in messages: the key, or a port that is derived from the key
	owner string // the owner of the address: a host, or an NPU
}

// boundPorts returns all ports that a node binds, in the order of the lists, except for ports that the system chooses.
// A node does not bind lists that the role or the mode does not use.
func (c *Config) boundPorts() (all []boundPort) {
	add := func(host, key, as string, ports []uint16) {
		for rank, port := range ports {
			all = append(all, boundPort{protocol.Endpoint{Host: host, Port: port}, rank, key, as, "host"})
		}
	}
	if c.Role.Receives() || c.Pull.Enabled {
		add(c.PeerHost, c.initKey(), c.initKey(), c.InitPorts)
	}
	add(c.PeerHost, p2pLookupKey, p2pLookupKey, c.Share.LookupPorts)
	if c.Role.Receives() {
		add(c.PeerHost, allocPortKey, allocPortKey, c.AllocPorts)
	}
	add(c.PeerHost, queryPortKey, queryPortKey, c.QueryPorts)
	if c.Pull.doneFromAlloc {
		add(c.PeerHost, allocPortKey, "the pull-done port (pd_peer_alloc_port + 100)", c.Pull.DonePorts)
	} else {
		add(c.PeerHost, donePortKey, donePortKey, c.Pull.DonePorts)
	}
	if c.Channel == ChannelAuto || c.Channel == ChannelTCP {
		add(c.Data.TCPHost, tcpPortKey, tcpPortKey, c.Data.TCPPorts)
	}
	add(c.NIXL.Host, nixlPortKey, nixlPortKey, c.NIXL.Ports)
	add(c.Operator.Host, ownPath(operatorPortKey), ownPath(operatorPortKey), c.Operator.Ports)
	add(c.HCCL.Host, hcclPortKey, hcclPortKey, c.HCCL.Ports)
	return append(all, c.boundNPUPorts()...)
}

// boundNPUPorts returns the ports on the NPUs that have an address in the file.
func (c *Config) boundNPUPorts() (all []boundPort) {
	for rank, ip := range c.HCCL.DeviceIPs {
		l := boundPort{protocol.Endpoint{Host: ip.String(), Port: DevicePortDefault}, rank, deviceIPKey,
			"the default hccl.device_port", "NPU"}
		if port, listed := c.DevicePort(rank); listed && len(c.HCCL.DevicePorts) > 0 {
			l.at.Port, l.key, l.label = port, devicePortKey, devicePortKey
		}
		all = append(all, l)
	}
	return all
}

// The keys of port lists.
const (
	initPortKey  = "pd_peer_init_port"
	allocPortKey = "pd_peer_alloc_port"
	donePortKey  = "pd_pull_done_port"
	tcpPortKey   = ownPrefix + "data.tcp_port"
)
