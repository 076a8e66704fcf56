package push

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/protocol"
)

// This file handles layerwise pushes. The Target answers such requests like requests for whole chunks, but with
// pages that land in bundles (fsm/rank/memory/bundle).

// namesLayers reports whether t.message names layers of chunks.
func (t *Target) namesLayers() bool { return t.message.HasExt && t.message.Ext.Layers > 0 }

// checkRequest returns OK if t.message could be served at some time, and otherwise the code and the reason.
func (t *Target) checkRequest(e *flow.Env) (effects.Code, *effects.Why) {
	m := &t.message
	if code, why := t.checkCarried(e); code != effects.OK {
		return code, why
	}
	if !t.namesLayers() {
		return e.CheckServable(m.Keys, m.Layout(), m.LastChunkTokens, len(m.Keys))
	}
	bundles := &e.Landings.Bundles
	switch {
	case bundles.LayersPerChunk() == 0:
		return effects.Unsupported, &effects.Why{
			Field: "kvf_layers", Ours: "none", Theirs: flow.FormatCount(m.Ext.Layers),
			Remedy: "set use_layerwise: true at both ends",
		}
	case bundles.LayersPerChunk() != m.Ext.Layers:
		return effects.Mismatch, &effects.Why{
			Field: "kvf_layers", Ours: flow.FormatCount(bundles.LayersPerChunk()), Theirs: flow.FormatCount(m.Ext.Layers),
			Remedy: "run the same model at both ends",
		}
	case len(m.Ext.Request) == 0:
		return effects.Invalid, &effects.Why{Field: "kvf_req", Ours: "the request of the layers", Theirs: "none"}
	case m.Layout() != e.Cfg.Layout:
		return effects.Mismatch, &effects.Why{Field: "shape", Ours: "that of a full chunk's layer", Theirs: "different"}
	}
	if code, why := e.CheckBatch(len(m.Keys), int(bundles.LayersPerChunk()), m.Layout(), m.LastChunkTokens); code != effects.OK {
		return code, why
	}
	run, first := uint32(0), uint64(0)
	for i, key := range m.Keys {
		name, layer, err := bundles.ParseLayerKey(key, e.Cfg.Wire.KeyBytes)
		if err == nil && layer >= m.Ext.Layers {
			return effects.Invalid, &effects.Why{
				Field: flow.EntryName("keys", i), Ours: "layers below " + flow.FormatCount(m.Ext.Layers), Theirs: flow.FormatCount(layer),
			}
		}
		if err != nil {
			return effects.Malformed, &effects.Why{Field: flow.EntryName("keys", i), Theirs: effects.SanitizeText([]byte(err.Error()))}
		}
		if protocol.TenantOf(key) != protocol.TenantOf(m.Keys[0]) {
			return effects.Malformed, &effects.Why{Field: flow.EntryName("keys", i), Ours: "keys of one tenant", Theirs: "of two"}
		}
		if !t.cfg.WholeChunks {
			continue
		}
		switch hash := e.Store.HashKey(name); {
		case run == 0:
			first = hash
		case hash != first:
			return effects.Unsupported, wholeChunksReason()
		}
		run = (run + 1) % m.Ext.Layers
	}
	if t.cfg.WholeChunks && (run != 0 || m.Ext.Opened != 0) {
		return effects.Unsupported, wholeChunksReason()
	}
	return effects.OK, nil
}

func wholeChunksReason() *effects.Why {
	return &effects.Why{
		Field: "keys", Ours: "all layers of each chunk, one chunk after the other", Theirs: "some of them",
	}
}

// hashChunks sets e.Hashes to the hashes of the chunks of the layers that t.message, of a peer of a class, names.
// Messages without layers have no effect.
func (t *Target) hashChunks(e *flow.Env, class int) {
	if !t.namesLayers() {
		return
	}
	e.Hashes = e.Hashes[:0]
	for _, key := range t.message.Keys {
		if name, _, err := e.Landings.Bundles.ParseLayerKey(key, e.Cfg.Wire.KeyBytes); err == nil {
			e.Hashes = append(e.Hashes, e.Store.HashIn(e.RealmOf(class), name))
		}
	}
}

// loseChunks reports the chunks of t.message as lost with the given code, so that the Gets that wait for these chunks
// are looked at again: the batch may have been in the queue, and Gets may have counted on it.
func (t *Target) loseChunks(e *flow.Env, class int, code effects.Code) {
	t.hashChunks(e, class)
	e.LoseChunks(e.Hashes, code)
}

// planLayers makes the plan for the layers of t.message and has the pages promised. If planLayers returns no
// plan, done reports whether the layers were refused; otherwise the layers wait for pages.
func (t *Target) planLayers(e *flow.Env, replyTo effects.Request, class int, peerID effects.Incarnation, requestHash uint64,
) (p *landing.Plan, lacks allocqueue.Shortfall, done bool) {
	m := &t.message
	run := bundle.Run{Class: class, Peer: peerID, Request: requestHash, Epoch: m.Ext.Epoch}
	from := flow.Sender{Request: replyTo, Class: class, Extended: true}
	if code := e.Landings.Bundles.EnterEpoch(&e.Env, &run); code != effects.OK {
		t.loseChunks(e, class, code)
		t.refuseRequest(e, from, len(m.Keys), code, &effects.Why{
			Field: "kvf_epoch", Theirs: flow.FormatCount(m.Ext.Epoch), Ours: "a later one of this request",
		})
		return nil, lacks, true
	}
	p, code, i := e.Landings.PlanLayers(&e.Env, &e.Store, &run, &landing.LayerBatch{
		Keys: m.Keys, Sums: m.Ext.Sums, LastTokens: m.LastChunkTokens, Operation: m.Ext.Operation,
		Opened: effects.GrantID(m.Ext.Opened),
	})
	if code == effects.TooMany {
		return nil, lacks, false // The request is looked at again when pages become free.
	}
	if code != effects.OK {
		t.loseChunks(e, class, code)
		e.Out.Mark(flow.Marks.AllocRefused)
		t.refuseRequest(e, from, len(m.Keys), code, &effects.Why{
			Field: "keys[" + strconv.Itoa(i) + "]", Ours: "a requested layer of a chunk whose earlier layers have arrived",
		})
		return nil, lacks, true
	}
	if !e.Landings.FitsLayers(&e.Env, &e.Store, p, class) {
		e.Landings.UnplanLayers(&e.Env, &e.Store, p)
		return nil, lacks, false
	}
	e.Landings.RedeemLayers(&e.Env, p)
	return p, lacks, true
}

// checkCarried returns OK if the bytes that t.message carries are as long as the chunks and no longer than the
// limit that the handshake announced.
func (t *Target) checkCarried(e *flow.Env) (effects.Code, *effects.Why) {
	m := &t.message
	carried := uint64(len(m.Ext.Carried))
	if carried == 0 {
		return effects.OK, nil
	}
	whole := uint64(len(m.Keys)-1)*e.Cfg.PageBytes + e.Cfg.Layout.TokenBytes()*uint64(m.LastChunkTokens)
	switch {
	case t.namesLayers():
		return effects.Malformed, &effects.Why{Field: "kvf_bytes", Ours: "none of layers", Theirs: flow.FormatCount(carried)}
	case carried > uint64(e.Cfg.Carries):
		return effects.Malformed, &effects.Why{
			Field: "kvf_bytes", Ours: "at most " + flow.FormatCount(e.Cfg.Carries), Theirs: flow.FormatCount(carried),
			Remedy: "send no more than kvf_carries of the handshake",
		}
	case carried != whole:
		return effects.Malformed, &effects.Why{Field: "kvf_bytes", Ours: flow.FormatCount(whole), Theirs: flow.FormatCount(carried)}
	}
	for i := range m.Ext.Sums {
		chunk := m.Ext.Carried[uint64(i)*e.Cfg.PageBytes:]
		chunk = chunk[:min(uint64(len(chunk)), e.Cfg.PageBytes)]
		if sum := effects.SumAt(m.Ext.Sums, i); sum != 0 && sum != effects.SumOf(chunk) {
			e.Out.Mark(landing.Marks.LandedCorrupt)
			return effects.Corrupt, &effects.Why{
				Field: flow.EntryName("kvf_sums", i), Ours: flow.FormatCount(uint32(effects.SumOf(chunk))), Theirs: flow.FormatCount(uint32(sum)),
			}
		}
	}
	return effects.OK, nil
}
