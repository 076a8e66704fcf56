package doctor

import (
	"fmt"
	"strings"
)

func (m Machine) checkNetwork(s *Section) {
	all, err := m.Interfaces()
	if err != nil {
		s.addProblem("interfaces", err.Error(), "allow netlink sockets: the addresses of this host cannot be read")
		return
	}
	outward := 0
	for _, i := range all {
		if !i.Up || len(i.Addresses) == 0 {
			continue
		}
		if !i.Loopback {
			outward++
		}
		value := fmt.Sprintf("%s, mtu %d", strings.Join(i.Addresses, " "), i.MTU)
		// Virtual interfaces have no speed: the file cannot be read, or has -1.
		if speed, ok := m.readNumber("sys/class/net/" + i.Name + "/speed"); ok && speed > 0 {
			value += fmt.Sprintf(", %g Gbit/s", float64(speed)/1000)
		}
		s.addOK(i.Name, "%s", value)
	}
	if outward == 0 {
		s.addWarning("interfaces", "only the loopback interface has an address",
			"give the container a network; otherwise only nodes on this host can be reached")
	}
}
