package config

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A Directory is the validated configuration of a directory. To workers, a directory is LMCache's controller.
type Directory struct {
	Name string // the name of the file, for messages

	settings map[string]setting

	Host           string          // host on which the directory listens; empty: every interface
	Advertise      string          // host of the heartbeat ports, as reported to workers; empty: the driver chooses
	Monitors       []MonitorPorts  // at least one
	WorkerTimeout  time.Duration   // time without a message after which a worker is considered dead; 0: never
	OnlyHeartbeats bool            // Silence applies only to workers with heartbeats; others are dead without a connection
	Tables         DirectoryTables // bounds of the tables
	Shared         SharedLog       // the log over which several directories exchange their reports
	Limits         protocol.Limits
	Link           Link          // only HandshakeTimeout and MessageTimeout are used
	Bounds         Bounds        // only the bounds of inbound connections and Mailbox are used
	Poll           time.Duration // as in Config
	Log            Log
	Security       Security
	Operator       Operator

	// Notes are the settings that were accepted although this version treats the settings differently than LMCache, in
	// the order of the file. All have Code Note.
	Notes []Problem
}

// MonitorPorts are the ports of a set of sockets for workers. Port 0 lets the system choose. The heartbeat port is
// optional.
type MonitorPorts struct {
	Pull, Reply, Heartbeat uint16
	HasHeartbeat           bool // the set has a heartbeat port
}

// SharedLog is the log in which directories keep the exchanged reports.
type SharedLog struct {
	Addr     protocol.Endpoint // address of a Valkey or Redis server; without a host there is no log
	Stream   string            // key of the stream on the server
	Password string
	Bytes    uint64 // bound of the log's size in bytes

	TLS           bool
	CA, Cert, Key string // files for TLS; empty: none
}

// DirectoryTables has the bounds of a directory's tables. When a table is full, the newer entry is refused.
type DirectoryTables struct {
	Instances, Workers, WorkersPerInstance uint32
	Holders                                uint32 // chunk locations of all workers
	Chunks                                 uint32 // different chunks of all locations
	Prefix                                 uint32 // hashes that one lookup examines
	Peers                                  uint32 // peers in the reply to one lookup
	BatchHashes                            uint32 // hashes in a batch of a full sync, and operations in a report
	Syncs                                  uint32 // full syncs in progress at the same time
	SyncTimeout                            time.Duration
	// StaleLocationTTL limits the time for which locations stay valid that were reported before a gap in the
	// operations.
	StaleLocationTTL time.Duration
}

// An Argument is the value of a key that was given as a command's argument, and not in the file or the environment.
type Argument struct {
	Key, Value string
	Label      string // the name that problems use for the argument, such as --ports
}

// ParseDirectory reads the configuration of a directory in the same way as Parse reads that of a node: LMCache's keys
// for its controller, and kvferry's own keys below extra_config.kvferry. The name of an environment variable is
// LMCACHE_CONTROLLER_ and the key in upper case, so LMCACHE_CONTROLLER_CONTROLLER_HOST is LMCache's name for the host.
// A file may be empty. Arguments override both the file and the environment.
func ParseDirectory(name string, data []byte, env func(string) (string, bool), args ...Argument) (*Directory, error) {
	if at := nodeKeyInFile(data); at != nil {
		return nil, &Error{Problems: []Problem{{Code: Conflict, File: name, Line: at.Line, Column: at.Column, Field: at.Value,
			Remedy: "this file describes a node and not a directory: run kvferry agent or kvferry node --config with it"}}}
	}
	d := newDraft(&directorySchema)
	d.arguments = args
	d.directory.Name = name
	if err := d.readSources(name, data, env, d.validateDirectory); err != nil {
		return nil, err
	}
	c := &d.directory
	c.Link, c.Bounds, c.Log, c.Notes = d.cfg.Link, d.cfg.Bounds, d.cfg.Log, d.cfg.Notes
	c.Poll, c.Security, c.Operator = d.cfg.Poll, d.cfg.Security, d.cfg.Operator
	c.settings = d.settings
	return c, nil
}

// validateDirectory checks the values of a directory's file together.
func (d *draft) validateDirectory() {
	c := &d.directory
	c.Limits = protocol.DefaultLimits()
	c.Limits.MessageBytes = int(d.messageBytes)
	c.Limits.HashCount, c.Limits.OperationCount = int(c.Tables.BatchHashes), int(c.Tables.BatchHashes)
	c.Limits.HashCount = max(c.Limits.HashCount, int(d.lookupHashes))
	switch timeout, given := d.settings[workerTimeoutKey]; {
	case d.healthCheck != checkNone:
		c.WorkerTimeout, c.OnlyHeartbeats = time.Duration(d.workerTimeout)*time.Second, d.healthCheck == checkAuto
	case given:
		d.addNoteAt(timeout, healthCheckKey+" is -1, so no worker is ever considered dead; remove this key, or set "+
			"health_check_interval to 1 or more")
	}
	d.limitTo("directory.workers_of_one", &c.Tables.WorkersPerInstance, "directory.workers", c.Tables.Workers)
	d.limitTo("directory.syncs", &c.Tables.Syncs, "directory.holders", c.Tables.Holders)
	d.checkDuplicatePorts()
	d.checkLogKeys()
	host := c.Host
	if host == "" {
		host = "0.0.0.0"
	}
	hosts := []listenHost{{controllerHostKey, host}}
	if ports := d.cfg.Operator.Ports; len(ports) > 0 {
		hosts = append(hosts, listenHost{ownPath(operatorHostKey), d.cfg.Operator.Host})
		if len(ports) > 1 {
			d.addProblemAt(ownPath(operatorPortKey), Range, "a directory has one process: give one port")
		}
	}
	d.validateSecurity(hosts)
	if log := &c.Shared; d.cfg.Security.Mode == secure.Strict && log.Addr.Host != "" && !log.TLS && !isLoopbackHost(log.Addr.Host) {
		d.addProblemAt(ownPath(sharedLogKey), Conflict, fmt.Sprintf("the log is read and written without TLS, and a process that writes "+
			"it speaks for all directories, so %s: strict would promise too much; set %s: true", securityModeKey, logTLSKey))
	}
}

// checkLogKeys reports keys of the shared log that require another key which is missing.
func (d *draft) checkLogKeys() {
	shared := &d.directory.Shared
	_, isThere := d.settings[ownPath(sharedLogKey)]
	for _, name := range []string{logTLSKey, logCAKey, logCertKey, logKeyKey} {
		s, given := d.settings[ownPath(name)]
		switch {
		case !given:
		case !isThere:
			d.addProblem(s.newProblem(Conflict, "there is no log; name one by "+sharedLogKey))
		case !shared.TLS && name != logTLSKey:
			d.addProblem(s.newProblem(Conflict, "the connection is not encrypted; set "+logTLSKey+": true"))
		case name == logCertKey && shared.Key == "":
			d.addProblem(s.newProblem(Missing, "a certificate alone proves nothing; give its key by "+logKeyKey))
		case name == logKeyKey && shared.Cert == "":
			d.addProblem(s.newProblem(Missing, "a key alone proves nothing; give its certificate by "+logCertKey))
		}
	}
}

// limitTo limits a value to the value of another key. A default is lowered, and a value that the user gave is refused.
func (d *draft) limitTo(name string, value *uint32, other string, limit uint32) {
	if s, given := d.settings[ownPath(name)]; given && *value > limit {
		d.addProblem(s.newProblem(Conflict, fmt.Sprintf("%s is %d; write no more", other, limit)))
	}
	*value = min(*value, limit)
}

// checkDuplicatePorts reports ports that would be bound twice.
func (d *draft) checkDuplicatePorts() {
	seen := map[uint16]bool{}
	for _, m := range d.directory.Monitors {
		for _, p := range []uint16{m.Pull, m.Reply, m.Heartbeat} {
			if p != 0 && seen[p] {
				d.addProblem(d.settings[monitorPortsKey].newProblem(Conflict,
					fmt.Sprintf("port %d is given twice; each socket needs a different port", p)))
				return
			}
			seen[p] = true
		}
	}
	for _, p := range d.cfg.Operator.Ports {
		if p != 0 && seen[p] {
			d.addProblemAt(ownPath(operatorPortKey), Conflict, fmt.Sprintf("port %d is one of %s; give another port", p, monitorPortsKey))
		}
	}
}

// nodeKeyInFile returns the key that marks a file as the file of a node, or nil if there is none.
func nodeKeyInFile(data []byte) *yaml.Node {
	if root, problem := loadMapping("", data); problem == nil && root != nil {
		return nodeKeyInMapping(root)
	}
	return nil
}

// nodeKeyInMapping returns the key at the top level that marks a file as the file of a node, or nil if there is none.
func nodeKeyInMapping(root *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		for _, key := range []string{"enable_pd", "enable_p2p", "pd_role"} {
			k := findKey(nodeSchema.top, key)
			if at := root.Content[i]; at.Value == k.name || slices.Contains(k.aliases, at.Value) {
				return at
			}
		}
	}
	return nil
}
