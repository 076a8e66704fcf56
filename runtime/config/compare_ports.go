package config

import (
	"github.com/kvferry/kvferry/protocol"
)

// ranks checks that the lists of both nodes serve the same number of ranks.
func (c *comparison) ranks() {
	if s, r := c.sender.Ranks(), c.receiver.Ranks(); s > 0 && s != r {
		c.add(c.b.rankKey(), c.b.Ranks(), "%s lists %d in %s; rank n of the sender talks to rank n of the receiver", c.a.Name,
			c.a.Ranks(), c.a.rankKey())
	}
}

// rankKey returns the first key with a list that determines the number of ranks.
func (c *Config) rankKey() string {
	switch {
	case len(c.InitPorts) > 0:
		return initPortKey
	case len(c.AllocPorts) > 0:
		return allocPortKey
	case len(c.Pull.DonePorts) > 0:
		return donePortKey
	case len(c.Data.TCPPorts) > 0:
		return tcpPortKey
	case len(c.NIXL.Ports) > 0:
		return nixlPortKey
	case len(c.HCCL.Ports) > 0:
		return hcclPortKey
	case len(c.HCCL.DeviceIPs) > 0:
		return deviceIPKey
	default:
		return devicePortKey
	}
}

// ComparePorts returns problems for the ports that two nodes both bind on one host, whatever their roles. Each problem
// names the file of b.
func ComparePorts(a, b *Config) []Problem {
	c := comparison{a: a, b: b}
	c.boundTwice()
	return c.problems
}

// ports reports ports that both nodes bind on a shared host, and a port of the proxy that is also a port of the
// receiver. Two different names of the same host are not detected.
func (c *comparison) ports() {
	c.boundTwice()
	proxy := c.sender.Proxy
	for _, l := range c.receiver.listens() {
		if l.at != proxy {
			continue
		}
		if c.b == c.sender {
			c.add("pd_proxy_port", proxy.Port,
				"%s has this port on the same host, as %s of rank %d; notifications for the proxy would go there", c.a.Name, l.as,
				l.rank)
		} else {
			c.add(l.key, proxy.Port,
				"%s names this port as its proxy's, on the same host; notifications for the proxy would come here", c.a.Name)
		}
	}
}

// boundTwice reports ports that both nodes bind on one host.
func (c *comparison) boundTwice() {
	taken := map[protocol.Endpoint]listening{}
	for _, l := range c.a.listens() {
		taken[l.at] = l
	}
	for _, l := range c.b.listens() {
		if other, is := taken[l.at]; is {
			c.add(l.key, l.at.Port, "%s has this port on the same %s, as %s of rank %d; give one of them another", c.a.Name,
				l.on, other.as, other.rank)
		}
	}
}
