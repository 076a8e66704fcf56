// Package hccn reads /etc/hccn.conf, in which a machine keeps the RoCE addresses of its NPUs.
package hccn

import (
	"net/netip"
	"strconv"
	"strings"
)

// File is where it is, and in containers that were given it.
const File = "/etc/hccn.conf"

// Address is that of one NPU, by its physical number, IPv4 before IPv6; false if the text has none.
func Address(text string, physical int) (netip.Addr, bool) {
	id := strconv.Itoa(physical)
	for _, name := range []string{"address_" + id, "IPv6address_" + id} {
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(line, "=")
			if strings.TrimSpace(key) != name {
				continue
			}
			if a, err := netip.ParseAddr(strings.TrimSpace(value)); err == nil {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
