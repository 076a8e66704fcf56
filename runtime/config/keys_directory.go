package config

import (
	"net/netip"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

const (
	controllerHostKey = "controller_host"
	monitorPortsKey   = "controller_monitor_ports"
	healthCheckKey    = "health_check_interval"
	workerTimeoutKey  = "lmcache_worker_timeout"
	batchHashesKey    = "directory.batch_hashes"
	sharedLogKey      = "directory.log"
	logPasswordKey    = "directory.log_password"
	logBytesKey       = "directory.log_bytes"
	logTLSKey         = "directory.log_tls"
	logCAKey          = "directory.log_ca"
	logCertKey        = "directory.log_cert"
	logKeyKey         = "directory.log_key"
)

// controllerKeys are the keys of LMCache's controller.
var controllerKeys = []key{
	{name: controllerHostKey, kind: kind{takes: "host, or `0.0.0.0`, `::` or `*` for every interface", read: readBindHost},
		def: "127.0.0.1",
		doc: "where its sockets are bound. Workers of other hosts reach it by another address of its host only; anybody " +
			"who reaches it can register workers, so choose one of a network that you trust. LMCache's standard is every " +
			"interface"},
	{name: monitorPortsKey, kind: kind{takes: "a mapping of `pull`, `reply` and, optionally, `heartbeat`, or a list of such",
		read: readMonitors}, def: `{"pull": 8300, "reply": 8400}`,
		doc: "ports of the sockets for workers; with `heartbeat`, those that register are told to send theirs there"},
	{name: healthCheckKey, kind: kind{takes: "auto, -1, or seconds from 1", read: readHealthCheck}, def: healthAuto,
		doc: "which workers are forgotten: with `auto` one that sends heartbeats when it was silent for " +
			"`lmcache_worker_timeout`, and any other when it has had no connection and said nothing for as long; with -1, " +
			"LMCache's standard, none; with a number each that was silent for as long. How often LMCache looks means nothing " +
			"here, where they are at their time"},
	{name: workerTimeoutKey, kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.workerTimeout }), def: "300",
		doc: "seconds after which a worker is forgotten; let it be several times their `lmcache_worker_heartbeat_time`"},
	{name: "controller_port", kind: portKind(func(d *draft) *uint16 { return &d.unusedPort }), def: "9000",
		doc: "of LMCache's HTTP interface", noEffect: "a directory has no HTTP interface, and nothing is served at this port"},
}

// directoryKeys are kvferry's own keys for a directory.
var directoryKeys = []key{
	{name: "directory.advertise_host", kind: hostKind(func(d *draft) *string { return &d.directory.Advertise }),
		doc: "under which workers reach its heartbeat ports; `controller_host` if unset, and where that is every " +
			"interface, " +
			"" +
			"the first address of this machine that is not the loopback's"},
	{name: "directory.instances", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.directory.Tables.Instances }),
		def: "1024", doc: "instances that it knows"},
	{name: "directory.workers", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.directory.Tables.Workers }),
		def: "4096", doc: "workers of all instances"},
	{name: "directory.workers_of_one",
		kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.directory.Tables.WorkersPerInstance }), def: "256",
		doc: "workers of one instance"},
	{name: "directory.holders", kind: integerKind(2, 1<<16-2, func(d *draft) *uint32 { return &d.directory.Tables.Holders }),
		def: "16384", doc: "locations of all workers; one that syncs in full has two for a while"},
	{name: "directory.chunks", kind: integerKind(1, 1<<31, func(d *draft) *uint32 { return &d.directory.Tables.Chunks }),
		def: "10000000", doc: "chunks of all locations; memory grows with what is there, up to 64 bytes each"},
	{name: "directory.prefix", kind: integerKind(1, 1<<12, func(d *draft) *uint32 { return &d.directory.Tables.Prefix }),
		def: "1000", doc: "chunks of a lookup that it looks for; of more the first ones"},
	{name: "directory.peers", kind: integerKind(1, 1<<8, func(d *draft) *uint32 { return &d.directory.Tables.Peers }),
		def: "8", doc: "holders in the answer of a lookup; LMCache's workers read the first"},
	{name: batchHashesKey,
		kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.directory.Tables.BatchHashes }), def: "4096",
		doc: "chunks in one message of a full sync, and operations in one report; LMCache's workers send 2,000, and 50"},
	{name: "directory.syncs", kind: integerKind(1, 1<<12, func(d *draft) *uint32 { return &d.directory.Tables.Syncs }),
		def: "16", doc: "full syncs at a time; who is to begin one beyond that begins it later"},
	{name: "directory.sync_patience",
		kind: durationKind(time.Second, time.Hour, func(d *draft) *time.Duration { return &d.directory.Tables.SyncTimeout }),
		def:  "60", doc: "after which a full sync that does not go on is given up"},
	{name: "directory.fade",
		kind: durationKind(time.Second, 24*time.Hour, func(d *draft) *time.Duration { return &d.directory.Tables.StaleLocationTTL }),
		def:  "600", doc: "after which what a worker told before a gap is not believed, if no full sync came, as from one " +
			"that sends no heartbeats"},
	{name: sharedLogKey, kind: kind{takes: "host:port", read: readSharedLog},
		doc: "a Valkey server, or Redis from 6.2, by which directories tell each other; all that name it know the same"},
	{name: "directory.log_stream", kind: textKind(func(d *draft) *string { return &d.directory.Shared.Stream }),
		def: "kvferry:directory", doc: "the key of the stream there"},
	{name: logPasswordKey, kind: textKind(func(d *draft) *string { return &d.directory.Shared.Password }),
		doc: "of its default user", secret: true},
	{name: logTLSKey, kind: boolKind(func(d *draft) *bool { return &d.directory.Shared.TLS }), def: "false",
		doc: "whether it speaks TLS, with a certificate for the name in `directory.log`"},
	{name: logCAKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.directory.Shared.CA }),
		doc: "a file in PEM of who vouches for that; without it whom the system trusts"},
	{name: logCertKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.directory.Shared.Cert }),
		doc: "a file in PEM of the certificate that it wants of a directory; with `directory.log_key`"},
	{name: logKeyKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.directory.Shared.Key }),
		doc: "likewise, of its key"},
	{name: logBytesKey,
		kind: sizeKind(1<<20, 1<<40, func(d *draft) *uint64 { return &d.directory.Shared.Bytes }), def: "256MiB",
		doc: "that it keeps, about. A directory that starts reads all of it, and has the rest told again; one that is " +
			"away for longer than the log keeps things has it told again as well, so raise it for large fleets"},
	{name: "limits.lookup_hashes", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.lookupHashes }),
		def: "65536",
		doc: "the most chunks of a lookup; one of more is refused"},
}

// directoryNodeKeys are the keys of nodes that a directory has as well.
var directoryNodeKeys = []string{"limits.message_bytes", "link.handshake_timeout", "link.message_timeout", "tables.guests", "poll.us",
	"tables.guests_per_address", "tables.strangers", "tables.mailbox", "log.level", "log.format"}

var directorySchema = schema{
	top: controllerKeys, own: slices.Concat(directoryKeys, selectKeys(nodeKeys, directoryNodeKeys)), envPrefix: "LMCACHE_CONTROLLER_",
	owner: "LMCache's controller",
}

// selectKeys returns the rows of another table with the given names.
func selectKeys(keys []key, names []string) (rows []key) {
	for _, name := range names {
		rows = append(rows, *findKey(keys, name))
	}
	return rows
}

func readBindHost(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalarText(n)
	if !isScalar {
		return Type, "write one host"
	}
	if addr, err := netip.ParseAddr(trimBrackets(s)); s == "" || s == "*" || err == nil && addr.IsUnspecified() {
		d.directory.Host = "" // every interface, for IPv4 and IPv6
		return codeOK, ""
	}
	name, remedy := checkHost(s)
	if remedy != "" {
		return Range, remedy
	}
	d.directory.Host = name
	return codeOK, ""
}

func readSharedLog(d *draft, n *yaml.Node) (Code, string) {
	at, code, remedy := parseEndpoint(n)
	d.directory.Shared.Addr = at
	return code, remedy
}

// textKind returns a kind that reads a text which only this machine uses, so that any text is accepted.
func textKind(field func(*draft) *string) kind {
	return kind{takes: "text", read: func(d *draft, n *yaml.Node) (Code, string) {
		s, isScalar := scalarText(n)
		if !isScalar || s == "" || len(s) > textLenMax {
			return Range, "write 1 to 512 bytes of text"
		}
		*field(d) = s
		return codeOK, ""
	}}
}

const (
	textLenMax    = 512
	pemPathLenMax = 4096
)

func readHealthCheck(d *draft, n *yaml.Node) (Code, string) {
	s, remedy := unquotedText(n)
	if remedy != "" {
		return Type, remedy
	}
	switch s {
	case healthAuto:
		d.healthCheck = checkAuto
		return codeOK, ""
	case "-1":
		d.healthCheck = checkNone
		return codeOK, ""
	}
	if v, err := parseUint(s); err != nil || v == 0 || v > 1<<20 {
		return Range, "write auto, -1, or a whole number of seconds from 1 to 1048576"
	}
	d.healthCheck = checkAll
	return codeOK, ""
}

// A healthCheck selects the workers that a directory drops.
type healthCheck uint8

const (
	checkAuto healthCheck = iota // depends on what each worker does: see the documentation of the key
	checkNone
	checkAll // every silent worker
)

const healthAuto = "auto"

// monitorSetsMax is the maximum number of socket sets of a directory.
const monitorSetsMax = 16

// readMonitors reads the ports of a set of sockets, or of a list of sets. JSON is accepted, as in LMCache.
func readMonitors(d *draft, n *yaml.Node) (Code, string) {
	const remedy = "write the ports: {pull: 8300, reply: 8400}, with heartbeat: 8500 if workers are to send heartbeats, " +
		"or a list of such"
	if s, isScalar := scalarText(n); isScalar {
		var doc yaml.Node
		if yaml.Load([]byte(s), &doc) != nil || len(doc.Content) != 1 || doc.Content[0].Kind == yaml.ScalarNode {
			return Type, remedy
		}
		n = doc.Content[0]
	}
	sets := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		sets = n.Content
	}
	if len(sets) == 0 || len(sets) > monitorSetsMax {
		return Range, "write one set of ports, or a list of 1 to 16"
	}
	var all []MonitorPorts
	for _, set := range sets {
		m, code, why := readMonitor(set)
		if code != codeOK {
			return code, why
		}
		all = append(all, m)
	}
	d.directory.Monitors = all
	return codeOK, ""
}

func readMonitor(set *yaml.Node) (m MonitorPorts, code Code, remedy string) {
	if set.Kind != yaml.MappingNode {
		return m, Type, "write a mapping of ports: {pull: 8300, reply: 8400}"
	}
	given := map[string]bool{}
	for i := 0; i+1 < len(set.Content); i += 2 {
		name := set.Content[i].Value
		field := map[string]*uint16{"pull": &m.Pull, "reply": &m.Reply, "heartbeat": &m.Heartbeat}[name]
		switch {
		case field == nil:
			return m, Range, "the ports are called pull, reply and heartbeat; there is none called " + shortenValue(name)
		case given[name]:
			return m, Duplicate, name + " is given twice; keep one"
		case isNull(set.Content[i+1]) && name == "heartbeat": // Null means not given, as None does in LMCache.
			continue
		}
		given[name] = true
		if *field, code, remedy = parsePort(set.Content[i+1]); code != codeOK {
			return m, code, name + ": " + remedy
		}
	}
	if !given["pull"] || !given["reply"] {
		return m, Missing, "give a pull and a reply port: {pull: 8300, reply: 8400}"
	}
	m.HasHeartbeat = given["heartbeat"]
	return m, codeOK, ""
}
