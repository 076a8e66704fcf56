package config

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
)

// A Directory is the validated configuration of one directory, which workers take for LMCache's controller.
type Directory struct {
	Name string // of the file, for messages

	Host      string          // where it binds; empty: on every interface
	Advertise string          // the host of its heartbeat ports, as workers are told; empty: the driver chooses
	Monitors  []MonitorPorts  // at least one
	Silence   time.Duration   // after which a worker is taken for dead; 0: none ever is
	OnlyBeats bool            // that is of workers that send heartbeats; others are when they have no connection
	Tables    DirectoryTables // what it knows at most
	Shared    SharedLog       // by which several directories tell each other
	Limits    protocol.Limits
	Link      Link          // of it, HandshakeTimeout and MessageTimeout
	Bounds    Bounds        // of it, those of guests, and Mailbox
	Poll      time.Duration // as of Config
	Log       Log

	// Notes are settings that were accepted and do not do what they say here, in the order of the file: all of Code Note.
	Notes []Problem
}

// MonitorPorts are the ports of one set of sockets for workers. 0 lets the system choose; Heartbeat may be left out.
type MonitorPorts struct {
	Pull, Reply, Heartbeat uint16
	Beats                  bool // there is a heartbeat port
}

// SharedLog is where directories keep what they tell each other.
type SharedLog struct {
	At       protocol.Endpoint // of a Valkey or Redis server; without a host there is none
	Stream   string            // its key there
	Password string
	Bytes    uint64 // that it keeps

	TLS           bool
	CA, Cert, Key string // files for that; empty: none
}

// DirectoryTables bound what a directory knows. At each bound something newer is refused.
type DirectoryTables struct {
	Instances, Workers, WorkersOfOne uint32
	Holders                          uint32 // locations of all workers
	Chunks                           uint32 // of all locations
	Prefix                           uint32 // hashes that one lookup looks at
	Peers                            uint32 // in the answer of one
	BatchHashes                      uint32 // of a full sync, and operations of a report
	Syncs                            uint32 // full syncs at a time
	SyncPatience                     time.Duration
	Fade                             time.Duration // of what was told before operations were missing
}

// An Argument is a key's value that somebody gave beside file and environment, as an argument of a command.
type Argument struct {
	Key, Value string
	As         string // what problems call it, such as --ports
}

// ParseDirectory reads the configuration of a directory, as Parse does that of a node: LMCache's keys for its
// controller, and kvferry's own below extra_config.kvferry. Variables are called LMCACHE_CONTROLLER_ and a key in upper
// case, so LMCACHE_CONTROLLER_CONTROLLER_HOST is LMCache's name for the host. A file may be empty. Arguments go before
// both.
func ParseDirectory(name string, data []byte, env func(string) (string, bool), given ...Argument) (*Directory, error) {
	if at := describesNode(data); at != nil {
		return nil, &Error{Problems: []Problem{{Code: Conflict, File: name, Line: at.Line, Column: at.Column, Field: at.Value,
			Remedy: "this file describes a node and no directory: run kvferry agent or kvferry node --config with it"}}}
	}
	d := newDraft(&directorySchema)
	d.arguments = given
	d.directory.Name = name
	if err := d.read(name, data, env, d.validateDirectory); err != nil {
		return nil, err
	}
	c := &d.directory
	c.Link, c.Bounds, c.Log, c.Notes = d.cfg.Link, d.cfg.Bounds, d.cfg.Log, d.cfg.Notes
	c.Poll = d.cfg.Poll
	return c, nil
}

// validateDirectory judges what its values mean together.
func (d *draft) validateDirectory() {
	c := &d.directory
	c.Limits = protocol.DefaultLimits()
	c.Limits.MessageBytes = int(d.messageBytes)
	c.Limits.HashCount, c.Limits.OperationCount = int(c.Tables.BatchHashes), int(c.Tables.BatchHashes)
	c.Limits.HashCount = max(c.Limits.HashCount, int(d.lookupHashes))
	switch timeout, given := d.found[workerTimeoutKey]; {
	case d.healthCheck != checkNone:
		c.Silence, c.OnlyBeats = time.Duration(d.workerTimeout)*time.Second, d.healthCheck == checkAuto
	case given:
		d.noteAt(timeout, healthCheckKey+" is -1, so no worker is ever taken for dead; leave it out, or set it to 1 or more")
	}
	d.atMost("directory.workers_of_one", &c.Tables.WorkersOfOne, "directory.workers", c.Tables.Workers)
	d.atMost("directory.syncs", &c.Tables.Syncs, "directory.holders", c.Tables.Holders)
	d.clashes()
	d.half()
}

// half finds what says of the log what makes sense together only.
func (d *draft) half() {
	shared := &d.directory.Shared
	_, isThere := d.found[ownPath(sharedLogKey)]
	for _, name := range []string{logTLSKey, logCAKey, logCertKey, logKeyKey} {
		s, given := d.found[ownPath(name)]
		switch {
		case !given:
		case !isThere:
			d.add(s.problem(Conflict, "there is no log; name one by "+sharedLogKey))
		case !shared.TLS && name != logTLSKey:
			d.add(s.problem(Conflict, "nothing is encrypted; set "+logTLSKey+": true"))
		case name == logCertKey && shared.Key == "":
			d.add(s.problem(Missing, "a certificate alone proves nothing; give its key by "+logKeyKey))
		case name == logKeyKey && shared.Cert == "":
			d.add(s.problem(Missing, "a key alone proves nothing; give its certificate by "+logCertKey))
		}
	}
}

// atMost lowers a value that nobody gave to another key's, and refuses one that somebody did.
func (d *draft) atMost(name string, value *uint32, other string, most uint32) {
	if s, given := d.found[ownPath(name)]; given && *value > most {
		d.add(s.problem(Conflict, fmt.Sprintf("%s is %d; write no more", other, most)))
	}
	*value = min(*value, most)
}

// clashes finds ports that are bound twice.
func (d *draft) clashes() {
	seen := map[uint16]bool{}
	for _, m := range d.directory.Monitors {
		for _, p := range []uint16{m.Pull, m.Reply, m.Heartbeat} {
			if p != 0 && seen[p] {
				d.add(d.found[monitorPortsKey].problem(Conflict,
					fmt.Sprintf("port %d is named twice; each socket needs one of its own", p)))
				return
			}
			seen[p] = true
		}
	}
}

// describesNode returns the key by which a file is one for a node, nil if there is none.
func describesNode(data []byte) *yaml.Node {
	if root, problem := load("", data); problem == nil && root != nil {
		return saysNode(root)
	}
	return nil
}

// saysNode returns the key at the top that says that a file is a node's, nil if there is none.
func saysNode(root *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		for _, key := range []string{"enable_pd", "enable_p2p", "pd_role"} {
			k := find(nodeSchema.top, key)
			if at := root.Content[i]; at.Value == k.name || slices.Contains(k.aliases, at.Value) {
				return at
			}
		}
	}
	return nil
}
