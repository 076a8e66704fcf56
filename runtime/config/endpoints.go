package config

import (
	"github.com/kvferry/kvferry/protocol"
)

// Ranks is how many ranks the port lists serve; 0 for a sender without ports, which serves any.
func (c *Config) Ranks() int {
	// All lists that are given are equally long.
	return max(len(c.InitPorts), len(c.AllocPorts), len(c.Pull.DonePorts), len(c.QueryPorts), len(c.Data.TCPPorts),
		len(c.Share.LookupPorts), len(c.HCCL.Ports), len(c.HCCL.DeviceIPs), len(c.HCCL.DevicePorts),
		len(c.NIXL.Ports))
}

// InitEndpoint returns where rank's handshakes are served, or false if the lists do not reach it. Its text
// is what peers are told.
func (c *Config) InitEndpoint(rank int) (protocol.Endpoint, bool) {
	return endpoint(c.PeerHost, c.InitPorts, rank)
}

// AllocEndpoint returns where rank's allocations are served, or false if the lists do not reach it.
func (c *Config) AllocEndpoint(rank int) (protocol.Endpoint, bool) {
	return endpoint(c.PeerHost, c.AllocPorts, rank)
}

// DoneEndpoint returns where a sender's rank is told that an offer was read, or false if it takes no
// such word: in push mode, at a receiver, and where the list does not reach rank. Its text is what receivers are
// told (sender_done_url), and in LMCache-Ascend also the sender's id.
func (c *Config) DoneEndpoint(rank int) (protocol.Endpoint, bool) {
	return endpoint(c.PeerHost, c.Pull.DonePorts, rank)
}

// QueryEndpoint returns where a receiver's rank is asked what may be read back, or false if it takes no such question
// or the list does not reach rank.
func (c *Config) QueryEndpoint(rank int) (protocol.Endpoint, bool) {
	return endpoint(c.PeerHost, c.QueryPorts, rank)
}

// LookupEndpoint returns where a rank that shares is asked what it has, or false if it does not or the list does not
// reach rank.
func (c *Config) LookupEndpoint(rank int) (protocol.Endpoint, bool) {
	return endpoint(c.PeerHost, c.Share.LookupPorts, rank)
}

// TCPEndpoint returns where rank's TCP plane listens. Port 0 lets the system choose; false means
// that there is a list of ports and that it does not reach rank.
func (c *Config) TCPEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.Data.TCPPorts) == 0 {
		return protocol.Endpoint{Host: c.Data.TCPHost}, rank >= 0
	}
	return endpoint(c.Data.TCPHost, c.Data.TCPPorts, rank)
}

func endpoint(host string, ports []uint16, rank int) (protocol.Endpoint, bool) {
	if rank < 0 || rank >= len(ports) {
		return protocol.Endpoint{}, false
	}
	return protocol.Endpoint{Host: host, Port: ports[rank]}, true
}

// A listening is one port that some rank of a node binds.
type listening struct {
	at   protocol.Endpoint
	rank int
	key  string // that lists it
	as   string // what to call it: the key, or what follows from it
	on   string // what has the address: a host, or an NPU
}

// listens are all ports that a node binds and that are not left to the system to choose, in the order of
// its lists. Lists that its role or its mode has no use for are not bound.
func (c *Config) listens() (all []listening) {
	add := func(host, key, as string, ports []uint16) {
		for rank, port := range ports {
			all = append(all, listening{protocol.Endpoint{Host: host, Port: port}, rank, key, as, "host"})
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
	add(c.HCCL.Host, hcclPortKey, hcclPortKey, c.HCCL.Ports)
	return append(all, c.listensOnNPUs()...)
}

// listensOnNPUs are the ports on NPUs whose addresses the file has.
func (c *Config) listensOnNPUs() (all []listening) {
	for rank, ip := range c.HCCL.DeviceIPs {
		l := listening{protocol.Endpoint{Host: ip.String(), Port: DevicePortDefault}, rank, deviceIPKey,
			"the default hccl.device_port", "NPU"}
		if port, listed := c.DevicePort(rank); listed && len(c.HCCL.DevicePorts) > 0 {
			l.at.Port, l.key, l.as = port, devicePortKey, devicePortKey
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
