package config

import (
	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/fsm/rank/memory/store"
)

const (
	bidirectionalKey = "pd_bidirectional"
	queryPortKey     = "pd_peer_query_port"
	retentionKey     = ownPrefix + "store.retention"
)

// readQueryPorts reads a list of ports. An empty list means none, as in LMCache.
func readQueryPorts(d *draft, n *yaml.Node) (Code, string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return codeOK, ""
	}
	return queryPorts.read(d, n)
}

var queryPorts = portsKind(func(d *draft) *[]uint16 { return &d.cfg.QueryPorts })

// validateRecall checks the keys of recalls together.
func (d *draft) validateRecall() {
	c, role := &d.cfg, d.cfg.Role
	if !c.Machine.Recalls {
		if len(c.QueryPorts) > 0 && role.Receives() {
			d.addProblemAt(queryPortKey, Conflict, "the port is not used while pd_bidirectional is false; set "+
				"pd_bidirectional: true on both ends, or remove the port")
		}
		for _, name := range []string{ownPath("recall.timeout"), ownPath("tables.recalls")} {
			d.addNote(name, "no effect while pd_bidirectional is false")
		}
	}
	if len(c.QueryPorts) > 0 && !role.Receives() {
		d.addNote(queryPortKey, "no effect at a sender: the query port of the receiver is part of each Recall")
	}
	if !c.Machine.Recalls || !role.Receives() {
		c.QueryPorts = nil
	}
	if !c.Machine.Recalls {
		return
	}
	if role.Receives() {
		if len(c.QueryPorts) == 0 && !d.hasProblem(d.settings[queryPortKey]) {
			d.addProblemAt(bidirectionalKey, Conflict, "a receiver needs a port for queries: give a port for each rank, such "+
				"as pd_peer_query_port: [7600, 7601]")
		}
		if !d.isGiven(retentionKey) {
			d.cfg.Machine.Retention = store.Cache // Read chunks must stay in the pool, because recalls return them.
		} else if d.cfg.Machine.Retention != store.Cache {
			d.addNote(retentionKey, "a chunk is dropped once it was read, so a recall finds only chunks that still wait for "+
				"their request; with pd_bidirectional the default is cache")
		}
	}
	if d.cfg.Channel == ChannelHCCL || d.cfg.Device.Kind == DeviceNPU {
		d.addProblemAt(bidirectionalKey, Unsupported, unsupportedPrefix+"recalls work only over shm, tcp and nixl; set "+
			"pd_bidirectional: false, or pd_buffer_device: cpu and transfer_channel: auto")
	}
}

// checkRecalls checks that the receiver accepts recalls if the sender recalls.
func (c *comparison) checkRecalls() {
	if c.sender.Machine.Recalls && !c.receiver.Machine.Recalls {
		c.addProblem(bidirectionalKey, c.b.Machine.Recalls,
			"%s has %t; a sender that recalls needs a receiver that allows recalls: set the same on both", c.a.Name,
			c.a.Machine.Recalls)
	}
}
