package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// Security has the parameters by which the process and its peers authenticate each other.
type Security struct {
	Mode secure.Mode
	// Cert, Key, CA and Policy are the files of secure.Config. All are set unless Mode is Off.
	Cert, Key, CA, Policy string
	dir                   string // has the files that the keys do not name; empty: none
	// AllowOff permits Mode Off on addresses that other hosts can reach.
	AllowOff bool
	// ProvenChunks is that of secure.Config.
	ProvenChunks bool
	// Plain is that of secure.Config.
	Plain []netip.Prefix
	// SharedPages declares that every peer of a plane that maps or registers whole pools may read all pages, although the
	// policy limits the tenants of peers.
	SharedPages bool

	exposed []Problem // addresses that other hosts can reach although Mode is Off and AllowOff is not set
}

// CheckExposed returns an error if the process would listen, without authentication, on an address that other hosts can
// reach, and the configuration does not allow that. Programs call it before they open sockets; a configuration that is
// only compared or printed needs no security.
func (s *Security) CheckExposed() error {
	if len(s.exposed) == 0 {
		return nil
	}
	return &Error{Problems: s.exposed}
}

// Open opens the guard of the process, and logs who the process is; the guard is nil if Mode is Off.
func (s *Security) Open(log *slog.Logger) (*secure.Guard, error) {
	if s.Mode == secure.Off {
		if s.AllowOff {
			log.Warn("security.mode is off: every process that reaches this process's ports can read and replace KV caches",
				"remedy", "set security.mode to permissive or strict (docs/security.md)")
		}
		return nil, nil
	}
	g, err := secure.Open(secure.Config{Mode: s.Mode, Cert: s.Cert, Key: s.Key, CA: s.CA, Policy: s.Policy,
		ProvenChunks: s.ProvenChunks, Plain: s.Plain, Log: log})
	if err != nil {
		return nil, err
	}
	log.Info("peers are authenticated", "mode", s.Mode.String(), "identity", g.Name())
	if len(s.Plain) > 0 {
		log.Warn("control connections without TLS are accepted from some networks: every process that connects from there is believed "+
			"to be an engine, with the chunks of the default tenant", "networks", s.Plain, "remedy", "keep the list to engines "+
			"that have no TLS, and other hosts out of these networks")
	}
	if s.Mode == secure.Permissive {
		log.Warn("security.mode is permissive: a peer without TLS is believed as before",
			"remedy", "set security.mode to strict when all peers have permissive or strict")
	}
	return g, nil
}

const (
	securityModeKey        = "security.mode"
	securityDirKey         = "security.dir"
	securityAllowOffKey    = "security.allow_off"
	securityChunksKey      = "security.chunks"
	securitySharedPagesKey = "security.shared_pages"
	securityPlainKey       = "security.plain"
	tenantsKey             = "tenants"
)

// securityFiles are the keys of the files, with the name of each file in security.dir. The names are those of
// cert-manager, of SPIRE's helper and of kvferry certs.
var securityFiles = []struct {
	name, file string
	path       func(*Security) *string
	doc        string
}{
	{"security.cert", "tls.crt", func(s *Security) *string { return &s.Cert }, "the PEM file with this process's certificate, and with " +
		"intermediate certificates if there are any. The identity is the certificate's URI or, without a URI, its first DNS name"},
	{"security.key", "tls.key", func(s *Security) *string { return &s.Key }, "the PEM file with the private key of the certificate"},
	{"security.ca", "ca.crt", func(s *Security) *string { return &s.CA }, "the PEM file with the certificates of the authorities whose " +
		"certificates are trusted; to change the authority, list both until all certificates are new"},
	{"security.policy", "policy.yaml", func(s *Security) *string { return &s.Policy }, "the YAML file that gives roles to identities " +
		"([security](security.md)); an identity without a role is refused"},
}

// securityKeys are the keys of a node and of a directory.
var securityKeys = makeSecurityKeys()

func makeSecurityKeys() []key {
	keys := []key{{name: securityModeKey, kind: wordKind(func(d *draft) *secure.Mode { return &d.cfg.Security.Mode },
		[]choice[secure.Mode]{{"off", secure.Off}, {"permissive", secure.Permissive}, {"strict", secure.Strict}}, 0, nil), def: "off",
		doc: "whether connections are authenticated and encrypted by mutual TLS 1.3: `strict` accepts nothing else except from the " +
			"networks of `security.plain`, `off` believes every process that reaches a port, and `permissive` accepts both, for the " +
			"time in which a fleet changes over"},
		{name: securityDirKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.cfg.Security.dir }),
			doc: "the folder with the files `tls.crt`, `tls.key`, `ca.crt` and `policy.yaml`, unless the keys below name others"}}
	for _, f := range securityFiles {
		keys = append(keys, key{name: f.name, kind: pathKind(pemPathLenMax, func(d *draft) *string { return f.path(&d.cfg.Security) }),
			doc: f.doc + ". It is read again within 10 s after it has changed; `" + f.file + "` in `security.dir` if unset"})
	}
	return append(keys, key{name: securityAllowOffKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Security.AllowOff }), def: "false",
		doc: "accepts `security.mode: off` on addresses that other hosts can reach: all hosts and users that reach them can read " +
			"and replace KV caches. Set it to true only on a dedicated network of the fleet"},
		key{name: securityChunksKey, kind: wordKind(func(d *draft) *bool { return &d.cfg.Security.ProvenChunks },
			[]choice[bool]{{"any", false}, {"proven", true}}, 0, nil), def: "any",
			doc: "with `security.mode: permissive`, what a peer without a certificate may touch: `any` is every chunk, as with `off`; " +
				"`proven` is the chunks of the default tenant, and peers with a certificate touch those that the policy gives " +
				"them. Set `proven` when all peers have certificates, before `strict`, which always does so"},
		key{name: securityPlainKey, kind: networksKind(func(d *draft) *[]netip.Prefix { return &d.cfg.Security.Plain }),
			doc: "with `security.mode: strict`, the networks from which control connections without TLS are accepted, for engines that " +
				"have no TLS, such as unmodified LMCache: [10.1.2.0/24]. Such a peer has the roles `prefill` and `decode`, " +
				"touches chunks of the default tenant, and is of no trust domain. Every process in these networks is believed to be " +
				"one, so list single addresses, or networks that only such engines are in"},
		key{name: securitySharedPagesKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Security.SharedPages }), def: "false",
			doc: "declares that all peers may read all pages of this node, whatever their tenants: planes that map or register whole " +
				"pools (shm, nixl, hccl) are refused otherwise when the policy limits tenants"})
}

// networksMax is the largest number of networks in a list.
const networksMax = 64

// networksKind returns a kind that reads a network in CIDR notation, or a list.
func networksKind(field func(*draft) *[]netip.Prefix) kind {
	return kind{takes: "a network in CIDR notation, or a list", read: func(d *draft, n *yaml.Node) (Code, string) {
		var texts []string
		if n.Kind == yaml.SequenceNode {
			for _, item := range n.Content {
				text, _ := scalarText(item)
				texts = append(texts, text)
			}
		} else {
			// A list of an environment variable; its colons may be those of IPv6.
			for text := range strings.SplitSeq(strings.Trim(n.Value, "[]"), ",") {
				texts = append(texts, strings.TrimSpace(text))
			}
		}
		if len(texts) == 0 || len(texts) > networksMax {
			return Range, fmt.Sprintf("write 1 to %d networks: [10.1.2.0/24]; without the key no connection without TLS is accepted",
				networksMax)
		}
		var list []netip.Prefix
		for i, text := range texts {
			network, remedy := parseNetwork(text)
			if remedy != "" {
				return Range, fmt.Sprintf("item %d, %q, %s", i+1, shortenValue(text), remedy)
			}
			list = append(list, network)
		}
		*field(d) = list
		return codeOK, ""
	}}
}

// parseNetwork returns a network, or says what is wrong with the text and what to write.
func parseNetwork(text string) (network netip.Prefix, remedy string) {
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return network, "is no network: write an address and the length of its prefix, such as 10.1.2.0/24 or 10.1.2.7/32"
	case network.Bits() == 0:
		return network, "contains every address: list the networks of the engines, or set security.mode: permissive"
	case network.Addr().Is4In6():
		return network, "is an IPv4 network in IPv6 notation: write it as IPv4"
	case network != network.Masked():
		return network, fmt.Sprintf("has bits behind its prefix: write %v, or %v/%d for the one address", network.Masked(),
			network.Addr(), network.Addr().BitLen())
	}
	return network, ""
}

// tenantKeys are the keys of a node about tenants.
var tenantKeys = []key{
	{name: tenantsKey, kind: tenantsKind(func(d *draft) **effects.Tenants { return &d.cfg.Machine.Tenants }),
		doc: "the tenants whose chunks this node may hold, request and send; all if unset. A tenant is `default`, for requests " +
			"without a cache salt, or what `kvferry tenant` prints for a salt. The engines of an agent map its whole pool, so give " +
			"tenants that must not read each other's chunks an agent each"},
}

// tenantsMax is the largest number of tenants of a node.
const tenantsMax = 256

// tenantsKind returns a kind that reads a tenant, or a list.
func tenantsKind(field func(*draft) **effects.Tenants) kind {
	return kind{takes: "a tenant, or a list", read: func(d *draft, n *yaml.Node) (Code, string) {
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		} else if strings.Contains(n.Value, ",") {
			items = fromEnvironment(n.Value).Content
		}
		if len(items) == 0 || len(items) > tenantsMax {
			return Range, fmt.Sprintf("write 1 to %d tenants: [default, 9f86d081884c7d65]; without the key the node has all", tenantsMax)
		}
		var list []effects.Tenant
		for i, item := range items {
			text, isScalar := scalarText(item)
			tenant, ok := effects.ParseTenant(text)
			if !isScalar || !ok {
				return Range, fmt.Sprintf("item %d is no tenant: write default, or the 16 lower-case hex digits that kvferry tenant prints "+
					"for a cache salt", i+1)
			}
			list = append(list, tenant)
		}
		*field(d) = effects.NewTenants(list...)
		return codeOK, ""
	}}
}

// clashOf reports whether two processes cannot connect because one of them is strict and the other one has no
// certificate.
func clashOf(a, b *Security) bool {
	return min(a.Mode, b.Mode) == secure.Off && max(a.Mode, b.Mode) == secure.Strict
}

// clashRemedy is the remedy for a clash, with the name and the mode of the other file.
const clashRemedy = "%s has %v, and a strict process talks only to processes with certificates; while the fleet changes over, " +
	"use permissive in both"

// A listenHost is a host on whose address the process listens, and the key that names the host.
type listenHost struct{ key, host string }

// validateSecurity checks the keys of security. Hosts are those on which the process listens.
func (d *draft) validateSecurity(hosts []listenHost) {
	s := &d.cfg.Security
	if s.Mode == secure.Off && s.dir != "" {
		d.addProblemAt(ownPath(securityDirKey), Conflict, fmt.Sprintf("no connection is authenticated; set %s: permissive or strict, or "+
			"remove this key", securityModeKey))
	}
	if s.Mode != secure.Strict && len(s.Plain) > 0 {
		d.addProblemAt(ownPath(securityPlainKey), Conflict, fmt.Sprintf("it matters only with %s: strict, because the other modes accept "+
			"every connection without TLS; remove this key", securityModeKey))
	}
	for _, f := range securityFiles {
		switch given := *f.path(s) != ""; {
		case s.Mode != secure.Off && !given && s.dir != "":
			*f.path(s) = filepath.Join(s.dir, f.file)
		case s.Mode != secure.Off && !given:
			d.addProblem(Problem{Code: Missing, File: d.cfg.Name, Field: ownPath(f.name), Remedy: fmt.Sprintf("it is missing, and %s "+
				"is %s: name the file, or a folder by %s; kvferry certs makes one", securityModeKey, s.Mode, securityDirKey)})
		case s.Mode == secure.Off && given:
			d.addProblemAt(ownPath(f.name), Conflict, fmt.Sprintf("no connection is authenticated; set %s: permissive or strict, or "+
				"remove this key", securityModeKey))
		}
	}
	if s.Mode != secure.Off || s.AllowOff {
		return
	}
	for i, h := range hosts {
		if h.host == "" || isLoopbackHost(h.host) || slices.Contains(hosts[:i], h) {
			continue
		}
		at, given := d.settings[h.key]
		if !given {
			at = setting{field: h.key, file: d.cfg.Name}
		}
		s.exposed = append(s.exposed, at.newProblem(Conflict, fmt.Sprintf("with %s: off, every process that reaches this address "+
			"can read and replace KV caches: set %[1]s: strict (docs/security.md), or give a loopback address, or, if the network "+
			"belongs to the fleet alone, set %s: true", ownPath(securityModeKey), ownPath(securityAllowOffKey))))
	}
}

// listenHosts returns the hosts on which a node listens, with the keys that are in the file.
func (d *draft) listenHosts() (hosts []listenHost) {
	c, peerKey := &d.cfg, "pd_peer_host"
	if c.Share.Only {
		peerKey = p2pHostKey
	}
	add := func(key, host string) {
		if !d.isGiven(key) {
			key = peerKey
		}
		hosts = append(hosts, listenHost{key, host})
	}
	if c.Role.Receives() || c.Pull.Enabled {
		add(peerKey, c.PeerHost)
	}
	switch c.Channel {
	case ChannelHCCL:
		add(ownPath("hccl.host"), c.HCCL.Host)
	case ChannelNIXL:
		add(nixlHostKey, c.NIXL.Host)
	case ChannelAuto, ChannelTCP:
		add(ownPath("data.tcp_host"), c.Data.TCPHost)
	case ChannelSHM:
	}
	if len(c.Operator.Ports) > 0 {
		hosts = append(hosts, listenHost{ownPath(operatorHostKey), c.Operator.Host})
	}
	return hosts
}

// validateNodeSecurity checks the keys of security against the other keys of a node.
func (d *draft) validateNodeSecurity() {
	c := &d.cfg
	d.validateSecurity(d.listenHosts())
	if c.Security.Mode != secure.Permissive && c.Security.ProvenChunks {
		d.addProblemAt(ownPath(securityChunksKey), Conflict, fmt.Sprintf("it matters only with %s: permissive, because strict accepts "+
			"no peer without a certificate, and off asks for none; remove this key", securityModeKey))
	}
	if c.Security.Mode == secure.Off {
		return
	}
	if c.Control == ControlLibZMQ {
		d.addProblemAt(ownPath("control.transport"), Conflict, fmt.Sprintf("libzmq has no TLS; use zmq, or set %s: off", securityModeKey))
	}
}
