package config

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
)

// NIXL is how the data plane over libnixl runs. Without transfer_channel nixl, none of it has an effect, and the list
// by rank is empty.
type NIXL struct {
	// Library is the path of libnixl_capi.so; empty lets the driver look for it.
	Library string
	// Transports is what UCX may use, as its UCX_TLS has it, without a comma; empty leaves it to UCX.
	Transports string
	// Host is where the plane's own channel listens and what it advertises; PeerHost if the file has none.
	Host string
	// TrustedNetwork says that all hosts and users that reach this host may read and write the process's memory.
	TrustedNetwork bool
	// Ports are its ports by rank; empty lets the system choose.
	Ports []uint16

	// TransferTimeout is the longest time in which no batch of a link ends.
	TransferTimeout time.Duration
	// CancelGrace is how long a batch of a cancelled transfer is waited for before its agents are given up for it.
	CancelGrace time.Duration
	// PrepareTimeout bounds how long the first byte takes between two agents.
	PrepareTimeout time.Duration
	// RebuildTries is how many times in a row the agents of a link may fail to meet before it is lost.
	RebuildTries uint32
	// Window is how many batches of one link are in flight. A batch has at most Descriptors pages or runs of pages, and
	// BatchBytes bytes if it has more than one.
	Window, Descriptors uint32
	BatchBytes          uint64
	// Links is how many peers a node has at most in each direction; no more than Bounds.Peers.
	Links uint32
}

// nixlKeys are kvferry's own for libnixl, below extra_config.kvferry like nodeKeys.
var nixlKeys = []key{
	{name: "nixl.library", kind: path(libraryLenMax, func(d *draft) *string { return &d.cfg.NIXL.Library }),
		doc: "`libnixl_capi.so`; the variable `KVFERRY_LIBNIXL`, or else where the loader looks, if unset"},
	{name: "nixl.transports", kind: transports(func(d *draft) *string { return &d.cfg.NIXL.Transports }),
		doc: "what UCX may use, as its `UCX_TLS`; with `tcp` or `^cma` no peer of the host reaches into this process, so " +
			"that a frozen one holds up no revocation; left to UCX if unset"},
	{name: "nixl.host", kind: host(func(d *draft) *string { return &d.cfg.NIXL.Host }),
		doc: "where the plane's own TCP channel listens, and what it advertises; `pd_peer_host` if unset. UCX " +
			"has addresses of its own (`UCX_NET_DEVICES`)"},
	{name: "nixl.trusted_network", kind: boolean(func(d *draft) *bool { return &d.cfg.NIXL.TrustedNetwork }), def: "false",
		doc: "says that all hosts and users that reach this host may read and write all memory of the node's process, " +
			"which they can over UCX's tcp. Without it `nixl.host` must be a loopback address, UCX is held to the " +
			"loopback, and peers of other hosts are refused. Set it to true on a network of the fleet alone"},
	{name: "nixl.port", kind: ports(func(d *draft) *[]uint16 { return &d.cfg.NIXL.Ports }),
		doc: "its port; chosen by the system if unset"},
	{name: "nixl.transfer_timeout",
		kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.TransferTimeout }),
		def:  "10", doc: "the longest time in which no batch of a link ends, before its agents are given up"},
	{name: "nixl.cancel_grace",
		kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.CancelGrace }),
		def:  "200ms", doc: "how long what is under way of a cancelled transfer is waited for, before they are"},
	{name: "nixl.prepare_timeout",
		kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.PrepareTimeout }),
		def:  "10", doc: "how long the first byte may take between two agents"},
	{name: "nixl.rebuild_tries", kind: integer(1, 100, func(d *draft) *uint32 { return &d.cfg.NIXL.RebuildTries }),
		def: "3", doc: "failures in a row of agents to meet, after which their link is lost"},
	{name: "nixl.window", kind: integer(1, 64, func(d *draft) *uint32 { return &d.cfg.NIXL.Window }), def: "2",
		doc: "batches of one link in flight"},
	{name: "nixl.descriptors", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.NIXL.Descriptors }),
		def: "1024", doc: "runs of adjacent pages in one batch"},
	{name: "nixl.batch_bytes", kind: size(1, 1<<40, func(d *draft) *uint64 { return &d.cfg.NIXL.BatchBytes }),
		def: "16MiB", doc: "bytes of one batch, unless one page has more; a copy within a host holds its link up until it " +
			"ends"},
	{name: "nixl.links", kind: integer(1, connsMost, func(d *draft) *uint32 { return &d.cfg.NIXL.Links }),
		doc: "peers at a time in each direction, each with an agent of 15 files, at most `tables.peers`; 64 if unset"},
}

// nixlLinksDefault is how many peers there are where the file does not say, if there may be as many.
const nixlLinksDefault = 64

// The keys of what a rank has to itself over libnixl, and of what depends on another.
var (
	nixlHostKey  = ownPath("nixl.host")
	nixlPortKey  = ownPath("nixl.port")
	nixlLinksKey = ownPath("nixl.links")
)

// transports reads one name of UCX's, or ^ and one. The engine's configuration in which libnixl takes it is a list with
// commas.
func transports(field func(*draft) *string) kind {
	const takes = "one name, or ^ and one"
	const lenMax = 32
	return kind{takes: takes, read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalar(n)
		name := strings.TrimPrefix(s, "^")
		switch {
		case !isScalar:
			return Type, "write " + takes + " that is not to be used, such as tcp or ^cma"
		case name == "" || len(name) > lenMax || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
			return Range, "write " + takes + " that is not to be used, such as tcp or ^cma; ucx_info -d has all"
		}
		*field(d) = s
		return ok, ""
	}}
}

// validateNIXL finishes what the plane over libnixl is told.
func (d *draft) validateNIXL() {
	c, n := &d.cfg, &d.cfg.NIXL
	if n.Host == "" {
		n.Host = c.PeerHost
	}
	if n.Host != "" && !n.TrustedNetwork && !isLoopback(n.Host) && !c.NeedsNPU() {
		name := "pd_peer_host"
		if d.given(nixlHostKey) {
			name = nixlHostKey
		}
		d.at(name, Conflict, fmt.Sprintf("over UCX's tcp, which libnixl uses, all hosts and users that reach this host can "+
			"read and write all memory of the node's process: give %s a loopback address such as 127.0.0.1, or, if they may do "+
			"that, set %s: true", nixlHostKey, ownPath("nixl.trusted_network")))
	}
	switch {
	case !d.given(nixlLinksKey):
		n.Links = min(nixlLinksDefault, c.Machine.PeersMax)
	case n.Links > c.Machine.PeersMax:
		d.at(nixlLinksKey, Conflict, "each is a peer; make it at most tables.peers, or that larger")
	}
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Leased reports whether pages are served by a leased plane: what peers store and load there, nobody sees.
func (c *Config) Leased() bool { return c.NeedsNPU() || c.Channel == ChannelNIXL }

// NIXLEndpoint returns where the channel of rank's plane over libnixl listens. Port 0 lets the system choose; false
// means that there is a list of ports and that it does not reach rank.
func (c *Config) NIXLEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.NIXL.Ports) == 0 {
		return protocol.Endpoint{Host: c.NIXL.Host}, rank >= 0
	}
	return endpoint(c.NIXL.Host, c.NIXL.Ports, rank)
}
