package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
)

// Layerwise has the parameters of layerwise push (use_layerwise), which pushes each layer of a chunk in a separate
// page. Layerwise contains the parameters of a sender that are outside of the state machine's configuration. Without
// Enabled, the remaining fields have no effect.
type Layerwise struct {
	Enabled bool
	// LinkBytes is the throughput of the link to a receiver in bytes per second, and BatchTime is the fixed time of a
	// batch. The sender uses both to decide which requests are sent as a whole. Zero means unknown.
	LinkBytes uint64
	BatchTime time.Duration
}

const (
	layerwiseKey = "use_layerwise"
	unfullKey    = "save_unfull_chunk"
)

// layerwiseKeys are kvferry's own keys for a node with use_layerwise.
var layerwiseKeys = []key{
	{name: "layerwise.merge_bytes", kind: sizeKind(1, 1<<40, func(d *draft) *uint64 { return &d.cfg.Machine.MergeBytes }),
		doc: "the maximum size of one batch of a sender, if a page is smaller: layers that are ready at the same time are " +
			"sent together"},
	{name: "layerwise.batches", kind: integerKind(1, 64, func(d *draft) *uint32 { return &d.cfg.Machine.BatchesMax }),
		doc: "the maximum number of batches of one request in flight"},
	{name: "layerwise.runs", kind: integerKind(1, 1<<14, func(d *draft) *uint32 { return &d.cfg.Machine.RunsMax }),
		doc: "the maximum number of requests that a sender pushes layer by layer at the same time, including requests with " +
			"last tokens that are still being read"},
	{name: "layerwise.saves", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.SavesMax }),
		doc: "the maximum number of SaveLayer calls with pages in use; further calls are refused at once"},
	{name: "layerwise.chunks", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.cfg.Machine.ChunksMax }), def: "65536",
		doc: "the maximum number of chunks of one request; the default is a million tokens in chunks of 16"},
	{name: "layerwise.run_ttl",
		kind: durationKind(time.Second, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RunTTL }),
		doc:  "how long a sender remembers a request without new calls, such as a preempted request"},
	{name: "layerwise.link_bytes", kind: sizeKind(0, 1<<50, func(d *draft) *uint64 { return &d.cfg.Layerwise.LinkBytes }),
		def: "0", doc: "the throughput of the link to a receiver in bytes per second: a request that would not arrive " +
			"earlier layer by layer is sent as a whole; 0 means unknown, and all requests are sent layer by layer"},
	{name: "layerwise.batch_time",
		kind: durationKind(0, time.Minute, func(d *draft) *time.Duration { return &d.cfg.Layerwise.BatchTime }), def: "0",
		doc: "the fixed time of a batch, in addition to the time for its bytes"},
	{name: "layerwise.bundles", kind: integerKind(0, 1<<20, func(d *draft) *uint32 { return &d.cfg.Machine.BundlesMax }),
		doc: "the maximum number of chunks that a receiver assembles from layers at the same time; if unset, as many as the " +
			"pool has room for, which is a good value. A longer prompt is sent in parts, the next part when chunks are " +
			"whole. With 0 the receiver accepts only whole chunks, and senders send whole chunks"},
	{name: "layerwise.bundle_ttl",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BundleTTL }),
		doc:  "how long a chunk may wait for its next layer; `lease` if unset"},
	{name: "layerwise.bundle_max",
		kind: durationKind(time.Millisecond, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BundleMaxTTL }),
		doc:  "how long the assembly of a chunk may take in total; ten times `layerwise.bundle_ttl` if unset"},
}

// validateLayerwise checks the keys of layerwise push together.
func (d *draft) validateLayerwise() {
	l, c := &d.cfg.Layerwise, &d.cfg
	if d.isGiven(unfullKey) && !d.savesUnfull && c.Role.Sends() {
		d.addNote(unfullKey, "no effect: the engine decides whether it puts the last partial chunk of a prefill")
	}
	if !l.Enabled {
		for i := range layerwiseKeys {
			d.addNote(ownPath(layerwiseKeys[i].name), "no effect while use_layerwise is false")
		}
		c.Layerwise, c.Machine.Layerwise, c.Machine.Bundling = Layerwise{}, rank.DefaultConfig().Layerwise, rank.Bundling{}
		return
	}
	for _, other := range []struct {
		is     bool
		remedy string
	}{
		{c.Share.Enabled, "chunks that are pushed layer by layer are not shared; set enable_p2p: false, or use_layerwise: " +
			"false"},
		{c.Pull.Enabled, "layers are pushed and not offered; set pd_pull_mode: false, or use_layerwise: false"},
		{c.Machine.Recalls, "chunks that arrived layer by layer are not read back; set pd_bidirectional: false, or " +
			"use_layerwise: false"},
	} {
		if other.is {
			d.addProblemAt(layerwiseKey, Conflict, other.remedy)
			return
		}
	}
	d.noteLayerwise()
	m := &c.Machine
	m.WholeChunks = d.isGiven(ownPath("layerwise.bundles")) && m.BundlesMax == 0
	if ttl := cmp.Or(m.BundleTTL, m.Lease); m.BundleMaxTTL > 0 && m.BundleMaxTTL < ttl {
		d.addProblemAt(ownPath("layerwise.bundle_max"), Conflict, fmt.Sprintf("make it at least layerwise.bundle_ttl, %v", ttl))
	}
	if most := uint32(1 << 16); c.Role.Sends() && uint64(m.RunsMax)*uint64(m.BatchesMax) > uint64(most) {
		d.addProblemAt(ownPath("layerwise.batches"), Conflict, fmt.Sprintf("%d requests of layerwise.runs with as many batches each "+
			"are %d; make one of the two smaller, so that it is at most %d", m.RunsMax,
			uint64(m.RunsMax)*uint64(m.BatchesMax), most))
	}
}

// noteLayerwise adds notes about keys that only the opposite role uses.
func (d *draft) noteLayerwise() {
	role := d.cfg.Role
	for _, name := range []string{
		"merge_bytes", "batches", "runs", "saves", "chunks", "run_ttl", "link_bytes", "batch_time",
	} {
		if !role.Sends() {
			d.addNote(ownPath("layerwise."+name), "no effect at a receiver")
		}
	}
	for _, name := range []string{"bundles", "bundle_ttl", "bundle_max"} {
		if !role.Receives() {
			d.addNote(ownPath("layerwise."+name), "no effect at a sender: the receiver's value applies")
		}
	}
}

// oneLayer returns the layout of a layer of a chunk, and the number of layers of the chunk.
func (c *Config) oneLayer(l protocol.Layout) (protocol.Layout, uint32, Problem, bool) {
	one, layers, ok := l.OneLayer()
	if !ok {
		return l, 0, Problem{Code: Conflict, Field: layerwiseKey, Value: "true",
			Remedy: fmt.Sprintf("the engine's chunks are %v, which has no layers; set use_layerwise: false", l.Format)}, false
	}
	if most := min(protocol.LayersMax, c.Limits.ArrayLen); int64(layers) > int64(most) {
		return l, 0, Problem{Code: Conflict, Field: layerwiseKey, Value: "true",
			Remedy: fmt.Sprintf("the model has %d layers, and the last tokens of a request go with all of them at once; raise "+
				"limits.keys_per_batch, up to %d, or set use_layerwise: false", layers, protocol.LayersMax)}, false
	}
	return one, layers, Problem{}, true
}

// checkLayersFit reports whether all layers of a chunk fit into the pool, and into the share of the pool that a peer
// may use.
func (c *Config) checkLayersFit() (p Problem, fits bool) {
	p = Problem{Code: Conflict, Field: c.poolKey, Value: fmt.Sprint(c.BufferBytes)}
	share := uint64(100)
	what := "the pool"
	if c.Role.Receives() && uint64(c.Machine.PeerSharePct) < share {
		share, what = uint64(c.Machine.PeerSharePct), "peer_share_pct of the pool"
	}
	if c.Role == Both && uint64(c.Machine.EngineSharePct) < share {
		share, what = uint64(c.Machine.EngineSharePct), "engine_share_pct of the pool"
	}
	if available := uint64(c.Pages) * share / 100; available < uint64(c.Machine.Layers) {
		p.Remedy = fmt.Sprintf("%s is %d pages, and with use_layerwise one chunk takes %d, one for each layer; make it at "+
			"least %d bytes", what, available, c.Machine.Layers, (uint64(c.Machine.Layers)*100+share-1)/share*c.PageBytes)
		return p, false
	}
	return p, true
}

// checkLayerwise checks that the sender pushes layer by layer if the receiver has a page for each layer, and that both
// nodes have the same number of layers.
func (c *comparison) checkLayerwise() {
	a, b, layers := c.a.Layerwise, c.b.Layerwise, c.a.Machine.Layers
	switch {
	case c.receiver.Layerwise.Enabled && !c.sender.Layerwise.Enabled:
		c.addProblem(layerwiseKey, b.Enabled, "%s has %t; a receiver with it has a page for each layer, and takes no whole chunks: "+
			"set the same on both", c.a.Name, a.Enabled)
	case layers != c.b.Machine.Layers && layers > 0 && c.b.Machine.Layers > 0:
		c.addProblem(ownPath("layout.num_layers"), c.b.Machine.Layers,
			"%s has %d; a chunk has one page for each layer, at both ends", c.a.Name, layers)
	}
}
