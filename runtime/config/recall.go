package config

import (
	"time"

	"go.yaml.in/yaml/v4"
)

// Recall is whether senders may read back what receivers still have (pd_bidirectional). Without Enabled nothing else
// here has an effect.
type Recall struct {
	Enabled bool
	// QueryPorts are where a receiver is asked what it has, by rank; empty at a sender.
	QueryPorts []uint16
	// Timeout bounds a sender's Recall.
	Timeout time.Duration
	// Max is how many recalls a sender has in progress, and how many prefixes a receiver has out for others to read.
	Max uint32
}

const (
	bidirectionalKey = "pd_bidirectional"
	queryPortKey     = "pd_peer_query_port"
	retentionKey     = ownPrefix + "store.retention"
)

// readQueryPorts reads a list of ports; an empty one is none, as in LMCache.
func readQueryPorts(d *draft, n *yaml.Node) (Code, string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return ok, ""
	}
	return queryPorts.read(d, n)
}

var queryPorts = ports(func(d *draft) *[]uint16 { return &d.cfg.Recall.QueryPorts })

// validateRecall checks what the keys of recalls say together.
func (d *draft) validateRecall() {
	r, role := &d.cfg.Recall, d.cfg.Role
	if !r.Enabled {
		if len(r.QueryPorts) > 0 && role.Receives() {
			d.at(queryPortKey, Conflict, "nobody is answered there while pd_bidirectional is false; set "+
				"pd_bidirectional: true on both ends, or remove the port")
		}
		for _, name := range []string{ownPath("recall.timeout"), ownPath("tables.recalls")} {
			d.note(name, "no effect while pd_bidirectional is false")
		}
	}
	if len(r.QueryPorts) > 0 && !role.Receives() {
		d.note(queryPortKey, "no effect at a sender: who receives is asked, and its port comes with each Recall")
	}
	if !r.Enabled || !role.Receives() {
		r.QueryPorts = nil
	}
	if !r.Enabled {
		return
	}
	if role.Receives() {
		if len(r.QueryPorts) == 0 && !d.hasProblem(d.found[queryPortKey]) {
			d.at(bidirectionalKey, Conflict, "a receiver is asked what it has: name a port for each rank, such as "+
				"pd_peer_query_port: [7600, 7601]")
		}
		if !d.given(retentionKey) {
			d.cfg.Push.Cache = true // What was read is what is recalled.
		} else if !d.cfg.Push.Cache {
			d.note(retentionKey, "a chunk is gone once it was read, so a recall finds only what still waits for its "+
				"request; with pd_bidirectional the default is cache")
		}
	}
	if d.cfg.Channel == ChannelHCCL || d.cfg.Device.Kind == DeviceNPU {
		d.at(bidirectionalKey, Unsupported, refusal+"recalls go over shm, tcp and nixl alone; set pd_bidirectional: "+
			"false, or pd_buffer_device: cpu and transfer_channel: auto")
	}
}

// recalls compares whether what the sender would read back may be.
func (c *comparison) recalls() {
	if c.sender.Recall.Enabled && !c.receiver.Recall.Enabled {
		c.add(bidirectionalKey, c.b.Recall.Enabled,
			"%s has %t; a sender that recalls needs a receiver that lets itself be read: set the same on both", c.a.Name,
			c.a.Recall.Enabled)
	}
}
