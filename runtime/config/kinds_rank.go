package config

import (
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ranksMax bounds the length of lists by rank. No node has more accelerators.
const ranksMax = 1024

// rankListReader returns a reader of a list with a value for each rank; a single value is a list of length 1. Like
// LMCache, the reader also accepts 7300,7301, which is a text in YAML.
func rankListReader[T any](plural, example string, parse func(*yaml.Node) (T, Code, string), set func(*draft, []T)) func(*draft,
	*yaml.Node) (Code, string) {
	return func(d *draft, n *yaml.Node) (Code, string) {
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		} else if n.Kind != yaml.ScalarNode {
			return Type, fmt.Sprintf("write a list of %s, one for each rank: %s", plural, example)
		} else if strings.Contains(n.Value, ",") {
			items = fromEnvironment(n.Value).Content
		}
		if len(items) == 0 || len(items) > ranksMax {
			return Range, fmt.Sprintf("write 1 to %d %s, one for each rank", ranksMax, plural)
		}
		list := make([]T, len(items))
		for i, item := range items {
			v, code, remedy := parse(item)
			if code != codeOK {
				return code, fmt.Sprintf("%s (item %d of %d is %q)", remedy, i+1, len(items), shortenValue(item.Value))
			}
			list[i] = v
		}
		set(d, list)
		return codeOK, ""
	}
}

// portsKind returns a kind that reads the ports of a node's ranks.
func portsKind(field func(*draft) *[]uint16) kind {
	return kind{takes: "port for each rank", read: rankListReader("ports", "[7300, 7301]", parsePort,
		func(d *draft, list []uint16) { *field(d) = list })}
}

// addressesKind returns a kind that reads the numeric addresses of the ranks' accelerators; host names are not
// accepted.
func addressesKind(field func(*draft) *[]netip.Addr) kind {
	return kind{takes: "address for each rank", read: rankListReader("addresses", "[192.168.1.10, 192.168.1.11]",
		parseAddress,
		func(d *draft, list []netip.Addr) { *field(d) = list })}
}

func parseAddress(n *yaml.Node) (netip.Addr, Code, string) {
	const remedy = "write an IP address such as 192.168.1.10"
	s, isScalar := scalarText(n)
	if !isScalar {
		return netip.Addr{}, Type, remedy
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, Type, remedy
	}
	if addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, Range, "name the address under which the NPU is reached, such as 192.168.1.10"
	}
	return addr.Unmap(), codeOK, ""
}
