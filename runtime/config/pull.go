package config

import (
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// Pull has the parameters of pull mode, in which the receiver reads the chunks that the sender offers. Both ends must
// agree on the mode. Without Enabled, the remaining fields have no effect.
type Pull struct {
	Enabled bool
	// Delay makes a receiver read a chunk only when the engine fetches the chunk. Delay has no effect at a sender.
	Delay bool
	// StagingBytes is the size of the part of a receiver's pool into which fetches read. If zero, the size is derived
	// from the pool; see Config.StagingPages.
	StagingBytes uint64
	// DonePorts are the ports where a sender is notified that an offer has been read, by rank; empty in push mode and
	// at a receiver.
	DonePorts []uint16
	// doneFromAlloc means that DonePorts were derived from AllocPorts.
	doneFromAlloc bool
}

// String returns the name of the mode: push, pull or delayed pull.
func (p Pull) String() string {
	switch {
	case p.Enabled && p.Delay:
		return "delayed pull"
	case p.Enabled:
		return "pull"
	default:
		return "push"
	}
}

// donePortOffset is added to the allocation port if pd_pull_done_port is missing. LMCache-Ascend documents this
// offset, but raises an error instead.
const donePortOffset = 100

// validatePull checks the keys of pull mode together, and derives the values that are missing.
func (d *draft) validatePull() {
	p := &d.cfg.Pull
	if !p.Enabled || !p.Delay || !d.cfg.Role.Receives() {
		for _, name := range []string{stagingKey, ownPath("pull.lead_min")} {
			d.addNote(name, "no effect except at a receiver with pd_delay_pull: only there are chunks read when the engine "+
				"fetches")
		}
		p.StagingBytes = 0
	}
	if !d.cfg.Role.Receives() {
		d.addNote(ownPath("pull.fetch_timeout"), "no effect at a sender: its engine fetches nothing")
	}
	if p.Delay && !p.Enabled {
		d.addProblemAt("pd_delay_pull", Conflict, "it needs pull mode: set pd_pull_mode: true on both ends, or remove it")
	}
	if d.cfg.Role == Both && d.cfg.Offload && d.cfg.Device.Kind == DeviceNPU {
		d.addProblemAt(offloadKey, Conflict, "a node of pd_role: both has one pool, and with offload a sender's is host memory "+
			"while a receiver's is the NPU's; write pd_buffer_device: cpu to have both in host memory, remove this key to "+
			"have both on the NPU, or run a node of pd_role: sender beside one of pd_role: receiver")
	}
	switch {
	case !p.Enabled:
		if d.cfg.Role == Sender && d.cfg.Offload {
			d.addProblemAt(offloadKey, Conflict, "it needs pull mode: set pd_pull_mode: true on both ends, or remove it")
		}
		d.resetOfferKeys("no effect while pd_pull_mode is false")
	case d.cfg.Role == Receiver:
		d.resetOfferKeys("no effect at a receiver: the sender's value applies")
	case d.cfg.Role.Sends():
		if !d.cfg.Role.Receives() {
			d.addNote("pd_delay_pull", "no effect at a sender: the receiver decides")
			d.requireKey("pd_peer_host",
				"in pull mode receivers connect to the sender: name the address under which they reach this node")
		}
		if host := d.cfg.PeerHost; host != "" && !(protocol.Endpoint{Host: host}).IsNumeric() && !d.cfg.Link.PeerNames {
			d.addNote(peerHostKey, "this is a host name, and receivers refuse offers of a sender that gives a name as its "+
				"address, unless they have extra_config.kvferry.link.peer_names: true; write an address, or set that key on "+
				"both ends")
		}
		d.validateDonePorts()
		d.checkReadLease()
		if !d.isGiven(initPortKey) && !d.cfg.Role.Receives() {
			d.addNote("pd_pull_mode",
				"without pd_peer_init_port this sender accepts no renewals: each offer ends after pd_pull_pending_ttl")
		}
	}
}

// peerHostKey is the key with the address at which peers reach the node.
const peerHostKey = "pd_peer_host"

func (d *draft) checkReadLease() {
	if m := &d.cfg.Machine; m.ReadLeaseMax > 0 && m.ReadLeaseMax < m.PullTTL {
		d.addProblemAt(loanMaxKey, Conflict, fmt.Sprintf("make it at least pd_pull_pending_ttl, %v: an offer is valid that "+
			"long in any case",
			m.PullTTL))
	}
}

// resetOfferKeys resets the keys of a sender that offers chunks, at a node that never offers any.
func (d *draft) resetOfferKeys(why string) {
	for _, name := range []string{donePortKey, offloadKey, "pd_pull_pending_ttl",
		"pd_pull_backpressure_reserve_pct", loanMaxKey} {
		d.addNote(name, why)
	}
	d.cfg.Pull.DonePorts, d.cfg.Machine.ReadLeaseMax, d.cfg.Offload = nil, 0, false
}

// validateDonePorts derives the ports from the allocation ports if the list is missing.
func (d *draft) validateDonePorts() {
	p := &d.cfg.Pull
	if d.isGiven(donePortKey) {
		return
	}
	if !d.isGiven(allocPortKey) {
		d.requireKey(donePortKey,
			"name a port for each rank, such as [7500, 7501], to which receivers report what they have read; with "+
				"pd_peer_alloc_port it would be that port + 100")
		return
	}
	for rank, port := range d.cfg.AllocPorts {
		if port > 65535-donePortOffset {
			d.addProblemAt(allocPortKey, Range,
				fmt.Sprintf("port %d of rank %d + %d would be the pull-done port and is above 65535; name pd_pull_done_port", port,
					rank, donePortOffset))
			return
		}
	}
	p.doneFromAlloc = true
	for _, port := range d.cfg.AllocPorts {
		p.DonePorts = append(p.DonePorts, port+donePortOffset)
	}
}
