package config

import (
	"github.com/kvferry/kvferry/protocol"
)

// checkRanks checks that the lists of both nodes serve the same number of ranks.
func (c *comparison) checkRanks() {
	if s, r := c.sender.RankCount(), c.receiver.RankCount(); s > 0 && s != r {
		c.addProblem(c.b.rankKey(), c.b.RankCount(), "%s lists %d in %s; rank n of the sender talks to rank n of the receiver", c.a.Name,
			c.a.RankCount(), c.a.rankKey())
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
	c.checkSharedPorts()
	return c.problems
}

// checkPorts reports ports that both nodes bind on a shared host, and a port of the proxy that is also a port of the
// receiver. Two different names of the same host are not detected.
func (c *comparison) checkPorts() {
	c.checkSharedPorts()
	proxy := c.sender.Proxy
	for _, l := range c.receiver.boundPorts() {
		if l.at != proxy {
			continue
		}
		if c.b == c.sender {
			c.addProblem("pd_proxy_port", proxy.Port,
				"%s has this port on the same host, as %s of rank %d; notifications for the proxy would go there", c.a.Name, l.label,
				l.rank)
		} else {
			c.addProblem(l.key, proxy.Port,
				"%s names this port as its proxy's, on the same host; notifications for the proxy would come here", c.a.Name)
		}
	}
}

// checkSharedPorts reports ports that both nodes bind on one host.
func (c *comparison) checkSharedPorts() {
	bound := map[protocol.Endpoint]boundPort{}
	for _, l := range c.a.boundPorts() {
		bound[l.at] = l
	}
	for _, l := range c.b.boundPorts() {
		if other, taken := bound[l.at]; taken {
			c.addProblem(l.key, l.at.Port, "%s has this port on the same %s, as %s of rank %d; give one of them another", c.a.Name,
				l.owner, other.label, other.rank)
		}
	}
}
