package config

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/protocol"
)

// validate checks the values of the keys together, and completes the Config. A key with an unreadable value gets no
// second problem.
func (d *draft) validate() {
	d.beginRegister()
	if d.validateShare(); !d.cfg.Share.Only {
		d.validatePD()
	}
	if d.cfg.Role != Both {
		d.addNote(ownPath("engine_share_pct"), "no effect except with pd_role: both: otherwise engine and peers share no pool")
	}
	d.checkOriginShare()
	d.validatePull()
	d.validateRecall()
	d.validateLayerwise()
	d.validateRegister()
	d.validateAccelerators()
	if d.cfg.Data.TCPHost == "" {
		d.cfg.Data.TCPHost = d.cfg.PeerHost
	}
	d.validatePorts()
	d.finishTimes()
	d.checkRegisterTimes()
	d.finishLimits()
	d.finishPools()
	d.noteNPU()
	d.finishLayout()
	d.validateNodeSecurity()
	if d.cfg.Bounds.Conns < d.cfg.Machine.PeersMax {
		d.addProblemAt(ownPath("tables.conns"), Conflict,
			fmt.Sprintf("every peer needs a connection; make it at least tables.peers, %d", d.cfg.Machine.PeersMax))
	}
}

// checkOriginShare checks that one peer may use its whole share of the pool.
func (d *draft) checkOriginShare() {
	if m := &d.cfg.Machine; m.OriginSharePct > 0 && m.OriginSharePct < m.PeerSharePct {
		d.addProblemAt(ownPath("origin_share_pct"), Conflict, fmt.Sprintf("make it at least peer_share_pct, %d, which is the share of "+
			"one peer", m.PeerSharePct))
	}
}

// validatePD checks the keys that a node for prefill and decode requires.
func (d *draft) validatePD() {
	d.requireKey("enable_pd", "set enable_pd: true")
	if d.isGiven("enable_pd") && !d.enablePD {
		d.addProblemAt("enable_pd", Range, "set enable_pd: true, or enable_p2p: true; without either LMCache does not transfer "+
			"between "+
			"nodes, and kvferry has nothing to do")
	}
	d.requireKey("pd_role", "set pd_role: sender, pd_role: receiver or pd_role: both")
	if !d.cfg.Register.Enabled {
		d.requireKey("pd_buffer_size", "set the size of the page pool in bytes, such as pd_buffer_size: 1GiB")
	}
	if !d.isGiven(legacyDeviceKey) {
		d.requireKey(deviceKey, "set pd_buffer_device: cpu, or npu for the memory of Ascend NPUs")
	}
	if d.cfg.Role.Sends() {
		d.validateSender()
	}
	if d.cfg.Role.Receives() {
		d.validateReceiver()
	}
}

func (d *draft) isGiven(name string) bool { _, given := d.settings[name]; return given }

// requireKey reports a problem if a required key is not given.
func (d *draft) requireKey(name, remedy string) {
	if !d.isGiven(name) {
		if role, given := d.settings["pd_role"]; given && role.file != d.cfg.Name {
			remedy += fmt.Sprintf("; %s makes this a %s", role.field, renderValue(role.node))
		}
		d.addProblem(Problem{Code: Missing, File: d.cfg.Name, Field: name, Remedy: "it is missing; " + remedy})
	}
}

// addProblemAt reports a problem at the value of a key, unless that value has a problem already.
func (d *draft) addProblemAt(name string, code Code, remedy string) {
	s, given := d.settings[name]
	if !given {
		s = setting{field: name, file: d.cfg.Name}
	}
	if !d.hasProblem(s) {
		d.addProblem(s.newProblem(code, remedy))
	}
}

func (d *draft) validateSender() {
	if !d.cfg.Role.Receives() {
		d.addNote(ownPath("reply_form"), "no effect at a sender: it reads every form")
	}
	if d.skipProxy {
		d.cfg.Proxy = protocol.Endpoint{}
		return
	}
	const instead = ", or set pd_skip_proxy_notification: true if no proxy waits"
	d.requireKey("pd_proxy_host", "name the proxy that waits for this sender's notifications"+instead)
	d.requireKey("pd_proxy_port", "name the proxy's port"+instead)
}

func (d *draft) validateReceiver() {
	d.requireKey("pd_peer_host", "name the address under which senders reach this node")
	d.requireKey(initPortKey, "name a port for each rank, such as [7300, 7301]")
	d.requireKey(allocPortKey, "name a port for each rank, such as [7400, 7401]")
	if d.retrievesElsewhere {
		d.addProblemAt("retrieve_locations", Range, "remove it, or write [PDBackend]")
	}
	if d.storesHere && !d.cfg.Role.Sends() {
		d.addProblemAt("store_location", Range, "remove it: this transfer goes one way, from sender to receiver")
	}
	if d.cfg.Pull.Enabled && d.cfg.Machine.ReplyForm != protocol.FormAscend {
		d.addNote(ownPath("reply_form"), "no effect on offers, which have one form of acknowledgement, LMCache-Ascend's")
	}
	if d.cfg.Role.Sends() {
		return
	}
	for _, name := range []string{"pd_proxy_host", "pd_proxy_port", "pd_skip_proxy_notification"} {
		d.addNote(name, "no effect at a receiver: the sender notifies the proxy")
	}
	d.cfg.Proxy = protocol.Endpoint{}
}

func (d *draft) finishTimes() {
	p := &d.cfg.Machine
	switch {
	case d.ownAllocTimeout > 0:
		p.AllocTimeout, d.cfg.allocTimeoutKey = d.ownAllocTimeout, ownPath("alloc_timeout")
	case d.allocTimeout > 0:
		p.AllocTimeout, d.cfg.allocTimeoutKey = d.allocTimeout, "pd_allocation_timeout_sec"
	default:
		p.AllocTimeout, d.cfg.allocTimeoutKey = p.BreakerTTL, "pd_alloc_fail_backoff_ttl"
	}
	if !d.isGiven(ownPath("lease_guard")) {
		p.LeaseGuard = min(p.LeaseGuard, p.Lease/4) // A short lease must leave time to write (rule M4).
	} else if p.LeaseGuard >= p.Lease {
		d.addProblemAt(ownPath("lease_guard"), Conflict,
			fmt.Sprintf("make it shorter than lease, %v; nothing could be done under a grant otherwise", p.Lease))
	}
	if ttl := d.cfg.Machine.PullTTL; d.cfg.Pull.Enabled && d.cfg.Role.Sends() && ttl > 0 && ttl <= p.LeaseGuard {
		d.addProblemAt("pd_pull_pending_ttl", Conflict,
			fmt.Sprintf("make it longer than lease_guard, %v; in that time before the end nothing is read any more", p.LeaseGuard))
	}
	// A node with a single role uses only one of the two timeouts. The peers use the second timeout, and Compare
	// checks the pair.
	if d.cfg.Role == Both && p.ReplyTimeout <= p.AllocTimeout {
		d.addProblemAt(ownPath("link.request_timeout"), Conflict, fmt.Sprintf("with pd_role: both make it longer than %s, %v, "+
			"which its peers have, too: or a refusal for want of pages would come too late", d.cfg.allocTimeoutKey,
			p.AllocTimeout))
	}
	if p.BackoffMax < p.BackoffMin {
		d.addProblemAt(ownPath("link.backoff_max"), Conflict, fmt.Sprintf("make it at least link.backoff_min, %v", p.BackoffMin))
	}
	if p.UnfitBackoff < p.BackoffMax {
		d.addProblemAt(ownPath("link.unfit_backoff"), Conflict, fmt.Sprintf("make it at least link.backoff_max, %v", p.BackoffMax))
	}
}

// finishLimits computes the limits of messages from the keys below limits.
func (d *draft) finishLimits() {
	d.finishRegistration()
	l := protocol.DefaultLimits()
	if d.cfg.Register.Enabled {
		// The decoder accepts a registration that is too large, so that the peer receives the reason of the refusal.
		l.BlockCount = pagesRegisteredMax
	}
	l.MessageBytes = int(d.messageBytes)
	l.ArrayLen = int(d.keysPerBatch)
	l.KeyBytes = int(d.keyBytes)
	d.cfg.Limits = l
	// A message that cannot contain a single key is a mistake. A full batch of the longest keys does not have to fit.
	if d.messageBytes < uint64(d.keyBytes) {
		d.addProblemAt(ownPath(messageBytesKey), Conflict,
			fmt.Sprintf("a key may have limits.key_bytes, %d; make the message limit larger", d.keyBytes))
	}
}

// finishPools determines which key sets the size of which pool.
func (d *draft) finishPools() {
	c := &d.cfg
	c.poolKey = bufferKey
	switch {
	case c.Register.Enabled:
		c.poolKey = ownPath("register.blocks")
	case !d.onAccelerator && d.cpuBufferBytes > 0:
		c.BufferBytes, c.poolKey = d.cpuBufferBytes, cpuBufferKey
		d.addNote(bufferKey, "pd_cpu_buffer_size takes precedence, because pd_buffer_device is cpu")
	case c.Offload && d.cpuBufferBytes > 0:
		c.BufferBytes, c.poolKey = d.cpuBufferBytes, cpuBufferKey
		d.addNote(bufferKey, "no effect: with pd_use_cpu_offload all pages are host memory, of pd_cpu_buffer_size, and none "+
			"are the NPU's")
	case c.Offload && c.Device.Kind == DeviceNPU:
		d.addNote(bufferKey, "with pd_use_cpu_offload and without pd_cpu_buffer_size this is the size of the pool in host "+
			"memory, and no pages are the NPU's")
	case d.onAccelerator:
		d.addNote(cpuBufferKey, "no effect without pd_use_cpu_offload: pd_buffer_size is the pool's")
	}
	if c.Offload && c.Device.Kind == DeviceCPU {
		c.Offload = false
		d.addNote(offloadKey, "no effect: the pool lies in host memory without it")
	}
}

// finishLayout computes the sizes of the pools if the file describes the layout of a chunk.
func (d *draft) finishLayout() {
	anyGiven := false
	for name := range d.settings {
		anyGiven = anyGiven || strings.HasPrefix(name, ownPath("layout."))
	}
	if !anyGiven {
		return
	}
	const together = "the layout keys go together"
	d.requireKey(ownPath("layout.num_layers"), together)
	d.requireKey(ownPath("layout.head_size"), together)
	d.requireKey(ownPath("layout.dtype"), together)
	l, c := &d.layout, &d.cfg
	layout := protocol.Layout{Dtype: l.dtype, Format: protocol.FormatKV2LTD,
		Shape: protocol.Shape{Dims: [4]uint32{2, l.layers, c.ChunkTokens, 0}, N: 4}}
	if l.mla {
		if d.isGiven(ownPath("layout.num_kv_heads")) && l.kvHeads != 1 {
			d.addProblemAt(ownPath("layout.num_kv_heads"), Conflict, "remove it: with layout.mla there is one latent head")
		}
		layout.Format = protocol.FormatKVMLA
		layout.Shape.Dims[0], layout.Shape.Dims[3] = 1, l.headSize
	} else {
		d.requireKey(ownPath("layout.num_kv_heads"), together)
		// The table of keys bounds the product to 2^36, so the product is checked before the truncation.
		hidden := uint64(l.kvHeads) * uint64(l.headSize)
		if hidden > 1<<31 {
			d.addProblemAt(ownPath("layout.num_kv_heads"), Conflict,
				"heads times layout.head_size is above 2^31; make one of them smaller")
		}
		layout.Shape.Dims[3] = uint32(hidden)
	}
	if len(d.problems) > 0 {
		return // The size of the pool would be computed from values that are known to be wrong.
	}
	if p, fits := c.applyLayout(layout); !fits {
		d.addProblemAt(p.Field, p.Code, p.Remedy)
	}
}
