package config

import (
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// validatePorts checks that no two ranks use the same port, and that all lists that are given serve the same number of
// ranks.
func (d *draft) validatePorts() {
	c := &d.cfg
	d.validateListLengths()
	users := map[protocol.Endpoint]boundPort{}
	for _, l := range c.boundPorts() {
		if other, taken := users[l.at]; taken {
			what := ""
			if l.label != l.key {
				what = ", " + l.label + ","
			}
			d.addProblemAt(l.key, Conflict, fmt.Sprintf("port %d%s is already used as %s of rank %d; give rank %d another "+
				"port", l.at.Port, what,
				other.label, other.rank, l.rank))
			continue
		}
		users[l.at] = l
	}
	if l, taken := users[c.Proxy]; taken {
		d.addProblemAt("pd_proxy_port", Conflict,
			fmt.Sprintf("this node itself uses the port, as %s of rank %d; give one of them another port", l.label, l.rank))
	}
}

func (d *draft) validateListLengths() {
	c := &d.cfg
	first, n := "", 0
	for _, l := range []struct {
		name  string
		ranks int
	}{{c.initKey(), len(c.InitPorts)}, {allocPortKey, len(c.AllocPorts)}, {donePortKey, len(c.Pull.DonePorts)},
		{queryPortKey, len(c.QueryPorts)}, {p2pLookupKey, len(c.Share.LookupPorts)},
		{tcpPortKey, len(c.Data.TCPPorts)},
		{hcclPortKey, len(c.HCCL.Ports)}, {deviceIPKey, len(c.HCCL.DeviceIPs)}, {devicePortKey, len(c.HCCL.DevicePorts)},
		{nixlPortKey, len(c.NIXL.Ports)}, {ownPath(operatorPortKey), len(c.Operator.Ports)}} {
		switch {
		case l.ranks == 0:
		case n == 0:
			first, n = l.name, l.ranks
		case l.ranks != n && d.isGiven(l.name):
			// A derived list is not reported, because the same error is reported for the original list.
			d.addProblemAt(l.name, Conflict, fmt.Sprintf("it lists %d and %s lists %d; give each rank one entry in both lists", l.ranks, first, n))
		}
	}
}

// initKey returns the key of the ports at which handshakes are accepted.
func (c *Config) initKey() string {
	if c.Share.Only {
		return p2pInitKey
	}
	return initPortKey
}
