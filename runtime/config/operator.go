package config

import (
	"net/netip"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
)

// An Operator has the addresses of the HTTP interface for operators: metrics, health, state and profiles.
type Operator struct {
	Host  string   // on which the process listens
	Ports []uint16 // by rank; empty: there is no such interface
}

// Endpoint returns the address at which the process of a rank listens, or false if the list has no entry for the rank.
func (o *Operator) Endpoint(rank int) (protocol.Endpoint, bool) {
	return rankEndpoint(o.Host, o.Ports, rank)
}

const operatorHostKey, operatorPortKey = "operator.host", "operator.port"

// operatorKeys are the keys of a node and of a directory.
var operatorKeys = []key{
	{name: operatorPortKey, kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Operator.Ports }),
		doc: "the port of the [HTTP interface for operators](operate.md): metrics, health, state and profiles; none if unset"},
	{name: operatorHostKey, kind: listenHostKind(func(d *draft) *string { return &d.cfg.Operator.Host }), def: "127.0.0.1",
		doc: "where that interface listens. At a loopback address it speaks HTTP, and every user of this host can read it. " +
			"Elsewhere clients need a certificate of an identity with the role operator, by the files of `security`"},
}

// listenHostKind returns a kind that reads a host on which the process listens, which may be every interface.
func listenHostKind(field func(*draft) *string) kind {
	return kind{takes: "host, or `0.0.0.0`, `::` or `*` for every interface", read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar {
			return Type, "write one host"
		}
		if addr, err := netip.ParseAddr(trimBrackets(s)); s == "*" || err == nil && addr.IsUnspecified() {
			*field(d) = "::" // every interface, for IPv4 and IPv6
			return codeOK, ""
		}
		name, remedy := checkHost(s)
		if remedy != "" {
			return Range, remedy
		}
		*field(d) = name
		return codeOK, ""
	}}
}
