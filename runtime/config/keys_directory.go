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
		doc: "the address at which the directory listens. With the default, only this host reaches the directory. Every host " +
			"that reaches the directory can register workers, so choose an address in a network that you trust. LMCache's " +
			"default is every interface"},
	{name: monitorPortsKey, kind: kind{takes: "a mapping of `pull`, `reply` and, optionally, `heartbeat`, or a list of such",
		read: readMonitors}, def: `{"pull": 8300, "reply": 8400}`,
		doc: "ports of the sockets for workers; with `heartbeat`, workers that register are instructed to send heartbeats to " +
			"that port"},
	{name: healthCheckKey, kind: kind{takes: "auto, -1, or seconds from 1", read: readHealthCheck}, def: healthAuto,
		doc: "which workers the directory drops: with `auto`, a worker that sends heartbeats after `lmcache_worker_timeout` " +
			"without a message, and any other worker after the same time without a connection and a message; with -1, " +
			"LMCache's default, none; with a number, every worker after `lmcache_worker_timeout` without a message. " +
			"LMCache's check interval has no meaning here, because the directory drops a worker exactly when the time is over"},
	{name: workerTimeoutKey, kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.workerTimeout }), def: "300",
		doc: "seconds without a message after which a worker is dropped; set it to several times the workers' " +
			"`lmcache_worker_heartbeat_time`"},
	{name: "controller_port", kind: portKind(func(d *draft) *uint16 { return &d.unusedPort }), def: "9000",
		doc: "the port of LMCache's HTTP interface", noEffect: "a directory has no HTTP interface, so nothing listens on this port"},
}

// directoryKeys are kvferry's own keys for a directory.
var directoryKeys = []key{
	{name: "directory.advertise_host", kind: hostKind(func(d *draft) *string { return &d.directory.Advertise }),
		doc: "the host at which workers reach the heartbeat ports; if unset, `controller_host`, or the first address of this " +
			"machine that is not a loopback address if `controller_host` is every interface"},
	{name: "directory.instances", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.directory.Tables.Instances }),
		def: "1024", doc: "the maximum number of instances"},
	{name: "directory.workers", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.directory.Tables.Workers }),
		def: "4096", doc: "the maximum number of workers of all instances"},
	{name: "directory.workers_of_one",
		kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.directory.Tables.WorkersPerInstance }), def: "256",
		doc: "the maximum number of workers of one instance"},
	{name: "directory.holders", kind: integerKind(2, 1<<16-2, func(d *draft) *uint32 { return &d.directory.Tables.Holders }),
		def: "16384", doc: "the maximum number of locations of all workers; a worker has two locations during a full sync"},
	{name: "directory.chunks", kind: integerKind(1, 1<<31, func(d *draft) *uint32 { return &d.directory.Tables.Chunks }),
		def: "10000000", doc: "the maximum number of chunks of all locations; the memory grows with the number of chunks, up " +
			"to 64 bytes for each"},
	{name: "directory.prefix", kind: integerKind(1, 1<<12, func(d *draft) *uint32 { return &d.directory.Tables.Prefix }),
		def: "1000", doc: "the number of chunks that one lookup examines; further chunks of the lookup are ignored"},
	{name: "directory.peers", kind: integerKind(1, 1<<8, func(d *draft) *uint32 { return &d.directory.Tables.Peers }),
		def: "8", doc: "the maximum number of holders in the reply to a lookup; LMCache's workers use only the first"},
	{name: batchHashesKey,
		kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.directory.Tables.BatchHashes }), def: "4096",
		doc: "the maximum number of chunks in one message of a full sync, and of operations in one report; LMCache's workers " +
			"send 2,000 and 50"},
	{name: "directory.syncs", kind: integerKind(1, 1<<12, func(d *draft) *uint32 { return &d.directory.Tables.Syncs }),
		def: "16", doc: "the maximum number of full syncs at the same time; further full syncs begin later"},
	{name: "directory.sync_timeout",
		kind: durationKind(time.Second, time.Hour, func(d *draft) *time.Duration { return &d.directory.Tables.SyncTimeout }),
		def:  "60", doc: "after this time without progress the directory gives up a full sync"},
	{name: "directory.fade",
		kind: durationKind(time.Second, 24*time.Hour, func(d *draft) *time.Duration { return &d.directory.Tables.StaleLocationTTL }),
		def:  "600", doc: "after this time the directory drops the locations that a worker reported before a gap in its " +
			"operations, unless a full sync has replaced them; a worker without heartbeats cannot be asked for a full sync"},
	{name: sharedLogKey, kind: kind{takes: "host:port", read: readSharedLog},
		doc: "the address of a Valkey server, or Redis 6.2 or later, through which directories exchange their reports; all " +
			"directories with the same log know the same workers"},
	{name: "directory.log_stream", kind: textKind(func(d *draft) *string { return &d.directory.Shared.Stream }),
		def: "kvferry:directory", doc: "the key of the stream on that server"},
	{name: logPasswordKey, kind: textKind(func(d *draft) *string { return &d.directory.Shared.Password }),
		doc: "the password of the server's default user", secret: true},
	{name: logTLSKey, kind: boolKind(func(d *draft) *bool { return &d.directory.Shared.TLS }), def: "false",
		doc: "whether the server uses TLS, with a certificate for the name in `directory.log`"},
	{name: logCAKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.directory.Shared.CA }),
		doc: "a PEM file with the authority of the server's certificate; if unset, `security.ca`, or without security the " +
			"authorities that the system trusts"},
	{name: logCertKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.directory.Shared.Cert }),
		doc: "a PEM file with the client certificate that the server requires of a directory, with `directory.log_key`; if " +
			"unset, `security.cert` and `security.key`"},
	{name: logKeyKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.directory.Shared.Key }),
		doc: "a PEM file with the key of the client certificate"},
	{name: logBytesKey,
		kind: sizeKind(1<<20, 1<<40, func(d *draft) *uint64 { return &d.directory.Shared.Bytes }), def: "256MiB",
		doc: "the approximate size that the log keeps. A directory that starts reads the whole log and requests the rest " +
			"again from workers, and so does a directory that was down for longer than the log reaches back; raise the size " +
			"for large fleets"},
	{name: "limits.lookup_hashes", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.lookupHashes }),
		def: "65536",
		doc: "the maximum number of chunks of a lookup; a longer lookup is refused"},
}

// directoryNodeKeys are the keys of nodes that a directory has as well.
var directoryNodeKeys = []string{"limits.message_bytes", "link.handshake_timeout", "link.message_timeout", "tables.guests", "poll.us",
	"tables.guests_per_address", "tables.strangers", "tables.mailbox", "log.level", "log.format"}

var directorySchema = schema{
	top: controllerKeys, own: slices.Concat(directoryKeys, selectKeys(nodeKeys, directoryNodeKeys), securityKeys, operatorKeys),
	envPrefix: "LMCACHE_CONTROLLER_", owner: "LMCache's controller",
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
