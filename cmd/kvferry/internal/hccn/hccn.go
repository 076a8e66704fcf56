// Package hccn reads /etc/hccn.conf, the file in which a machine stores the RoCE addresses of the NPUs. A caller reads
// the File and passes the text to Address. For example, Address returns 192.0.2.1 for NPU 0 if the text has the line
// "address_0=192.0.2.1".
package hccn

import (
	"net/netip"
	"strconv"
	"strings"
)

// File is the path of the file on the host. Containers have the file at the same path if it was mounted into them.
const File = "/etc/hccn.conf"

// Address returns the RoCE address of the NPU with the given physical number. It prefers IPv4 to IPv6, and reports
// false if the text has no valid address for the NPU.
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
