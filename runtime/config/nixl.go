package config

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
)

// NIXL has the parameters of the data plane over libnixl. Without transfer_channel nixl, the fields have no effect and
// the list by rank is empty.
type NIXL struct {
	// Library is the path of libnixl_capi.so; if empty, the driver searches for the library.
	Library string
	// Transports names the transport that UCX may use, in the form of UCX_TLS, without a comma. If empty, UCX chooses.
	Transports string
	// Host is the host where the plane's own channel listens, and the host that is advertised; PeerHost if the file
	// has none.
	Host string
	// InProcess means that libnixl runs in the node's process, where peers can reach all memory and end the process.
	// Otherwise it runs in a process of its own, which Program starts: a kvferry binary, or this program if Program is
	// empty. That process is killed if a call takes longer than ProcessTimeout.
	InProcess      bool
	Program        string
	ProcessTimeout time.Duration
	// TrustedNetwork means that every host and user that can reach this host may read and write the memory of
	// libnixl's process.
	TrustedNetwork bool
	// Ports are the ports of the plane's own channel, by rank; empty lets the system choose.
	Ports []uint16

	// TransferTimeout is the longest time during which no batch of a link may complete.
	TransferTimeout time.Duration
	// CancelGrace limits the time for which the plane waits for a batch of a cancelled transfer before giving up the
	// link's agents.
	CancelGrace time.Duration
	// PrepareTimeout bounds the time until the first byte between two agents arrives.
	PrepareTimeout time.Duration
	// RebuildTries limits the number of times in a row that the agents of a link may fail to connect before the link
	// is lost.
	RebuildTries uint32
	// Window is the maximum number of batches of a link in flight. A batch has at most Descriptors pages or runs of
	// pages, and at most BatchBytes bytes if there is more than one page.
	Window, Descriptors uint32
	BatchBytes          uint64
	// Links is the maximum number of peers of a node in each direction, at most Bounds.Peers.
	Links uint32
}

// nixlKeys are kvferry's own keys for libnixl, below extra_config.kvferry like nodeKeys.
var nixlKeys = []key{
	{name: "nixl.library", kind: pathKind(libraryLenMax, func(d *draft) *string { return &d.cfg.NIXL.Library }),
		doc: "the path of `libnixl_capi.so`; if unset, the variable `KVFERRY_LIBNIXL`, or else the loader's search path"},
	{name: "nixl.in_process", kind: boolKind(func(d *draft) *bool { return &d.cfg.NIXL.InProcess }), def: "false",
		doc: "runs libnixl in the node's own process. That accepts that a peer can end the node with bad metadata, and that " +
			"a process that reaches UCX's tcp can read and write all memory of the node, keys included. " +
			"[Otherwise](nixl.md#a-process-of-its-own) libnixl runs in a process of its own, which has only the pool"},
	{name: "nixl.program", kind: pathKind(libraryLenMax, func(d *draft) *string { return &d.cfg.NIXL.Program }),
		doc: "the kvferry binary to run as libnixl's process; the program itself if unset"},
	{name: "nixl.process_timeout",
		kind: durationKind(100*time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.ProcessTimeout }),
		def:  "10", doc: "how long a call of libnixl's process may take; then the process is killed and started anew"},
	{name: "nixl.transports", kind: transportKind(func(d *draft) *string { return &d.cfg.NIXL.Transports }),
		doc: "the transport that UCX may use, in the form of `UCX_TLS`; with `tcp` or `^cma` no peer on the host accesses " +
			"this node's memory directly, so that a frozen peer delays no revocation; UCX chooses if unset"},
	{name: "nixl.host", kind: hostKind(func(d *draft) *string { return &d.cfg.NIXL.Host }),
		doc: "where the plane's own TCP channel listens, and what it advertises; `pd_peer_host` if unset. UCX " +
			"has addresses of its own (`UCX_NET_DEVICES`)"},
	{name: "nixl.trusted_network", kind: boolKind(func(d *draft) *bool { return &d.cfg.NIXL.TrustedNetwork }), def: "false",
		doc: "declares that all hosts and users that reach this host may read and write all memory of libnixl's process " +
			"(the pool, and with `nixl.in_process` the node), which is possible over UCX's tcp. Without it `nixl.host` must be " +
			"a loopback address, UCX uses only the loopback " +
			"interface, and peers on other hosts are refused. Set it to true only on a dedicated network of the fleet"},
	{name: "nixl.port", kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.NIXL.Ports }),
		doc: "the port of that channel; chosen by the system if unset"},
	{name: "nixl.transfer_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.TransferTimeout }),
		def:  "10", doc: "the longest time without a completed batch of a link; then the link's agents are given up"},
	{name: "nixl.cancel_grace",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.CancelGrace }),
		def:  "200ms", doc: "how long the plane waits for the batches of a cancelled transfer before it gives up the link's " +
			"agents"},
	{name: "nixl.prepare_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.NIXL.PrepareTimeout }),
		def:  "10", doc: "how long the first byte between two agents may take"},
	{name: "nixl.rebuild_tries", kind: integerKind(1, 100, func(d *draft) *uint32 { return &d.cfg.NIXL.RebuildTries }),
		def: "3", doc: "how many times in a row the agents of a link may fail to connect before the link is lost"},
	{name: "nixl.window", kind: integerKind(1, 64, func(d *draft) *uint32 { return &d.cfg.NIXL.Window }), def: "2",
		doc: "batches of one link in flight"},
	{name: "nixl.descriptors", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.NIXL.Descriptors }),
		def: "1024", doc: "runs of adjacent pages in one batch"},
	{name: "nixl.batch_bytes", kind: sizeKind(1, 1<<40, func(d *draft) *uint64 { return &d.cfg.NIXL.BatchBytes }),
		def: "16MiB", doc: "the maximum size of one batch, unless one page is larger; a copy within a host blocks its link " +
			"until it ends"},
	{name: "nixl.links", kind: integerKind(1, connsMax, func(d *draft) *uint32 { return &d.cfg.NIXL.Links }),
		doc: "the maximum number of peers in each direction, each with an agent with 15 open files; at most `tables.peers`; " +
			"64 if unset"},
}

// nixlLinksDefault is the number of peers if the file has none, unless the maximum is lower.
const nixlLinksDefault = 64

// The keys of values that each rank needs for itself over libnixl, and of a value that depends on another key.
var (
	nixlHostKey  = ownPath("nixl.host")
	nixlPortKey  = ownPath("nixl.port")
	nixlLinksKey = ownPath("nixl.links")
)

// transportKind returns a kind that reads a UCX transport name, or ^ and a name. A comma is not allowed, because the
// engine's configuration, in which libnixl takes the value, is a list with commas.
func transportKind(field func(*draft) *string) kind {
	const takes = "one name, or ^ and one name"
	const lenMax = 32
	return kind{takes: takes, read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		name := strings.TrimPrefix(s, "^")
		switch {
		case !isScalar:
			return Type, "write " + takes + " that is not to be used, such as tcp or ^cma"
		case name == "" || len(name) > lenMax || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
			return Range, "write " + takes + " that is not to be used, such as tcp or ^cma; ucx_info -d has all"
		}
		*field(d) = s
		return codeOK, ""
	}}
}

// validateNIXL completes the parameters of the plane over libnixl.
func (d *draft) validateNIXL() {
	c, n := &d.cfg, &d.cfg.NIXL
	if n.Host == "" {
		n.Host = c.PeerHost
	}
	if n.Host != "" && !n.TrustedNetwork && !isLoopbackHost(n.Host) && !c.NeedsNPU() {
		name := "pd_peer_host"
		if d.isGiven(nixlHostKey) {
			name = nixlHostKey
		}
		d.addProblemAt(name, Conflict, fmt.Sprintf("over UCX's tcp, which libnixl uses, all hosts and users that reach this host can "+
			"read and write the whole pool, whatever was granted: give %s a loopback address such as 127.0.0.1, or, if they may do "+
			"that, set %s: true", nixlHostKey, ownPath("nixl.trusted_network")))
	}
	switch {
	case !d.isGiven(nixlLinksKey):
		n.Links = min(nixlLinksDefault, c.Machine.PeersMax)
	case n.Links > c.Machine.PeersMax:
		d.addProblemAt(nixlLinksKey, Conflict, "each link belongs to a peer; make it at most tables.peers, or raise "+
			"tables.peers")
	}
}

// HasLeasedPlane reports whether a leased plane serves the pages: this node cannot observe the stores and loads that
// peers make there (rule M4).
func (c *Config) HasLeasedPlane() bool { return c.NeedsNPU() || c.Channel == ChannelNIXL }

// NIXLEndpoint returns the address at which the channel of a rank's plane over libnixl listens. Port 0 lets the system
// choose. The result is false if there is a list of ports that has no entry for the rank.
func (c *Config) NIXLEndpoint(rank int) (protocol.Endpoint, bool) {
	if len(c.NIXL.Ports) == 0 {
		return protocol.Endpoint{Host: c.NIXL.Host}, rank >= 0
	}
	return rankEndpoint(c.NIXL.Host, c.NIXL.Ports, rank)
}
