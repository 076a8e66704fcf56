package runtime

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/runtime/span"
)

// SharedFetch names chunks that an engine fetches from this node or from peers with its own device code.
type SharedFetch struct {
	SharedGet
	Scatter       Scatter // exactly one of these three is set, as with Fetch
	ScatterDevice DeviceScatter
	ScatterMapped MappedScatter
}

// Lease makes peers lend the chunks that they have, and leaves the chunks at the peers until they are fetched
// (p2p_delay_pull). It returns the number of chunks, from the first key on, that are here or kept for the request.
// Kept chunks use no page of this node. They are kept for as long as the peers lend them (the peers'
// p2p_pull_pending_ttl) and the connection to the peers lasts; Abandon gives them back.
//
// If a chunk is missing, the error is NotFound and names the first missing chunk; other errors are as with
// [Sharing.Get].
func (s Sharing) Lease(ctx context.Context, g SharedGet) (leased int, err error) {
	const op = "lease"
	n := s.node
	if err := n.checkSharedGet(op, &g); err != nil {
		return 0, err
	}
	if !n.cfg.Keeps {
		e := argumentError(op, "p2p_delay_pull", "false", "true", "set p2p_delay_pull: true, or call Get")
		e.Code = effects.Unsupported
		return 0, e
	}
	if n.tracer == nil || !span.IsSampled(g.Trace) {
		g.Trace = effects.TraceContext{}
	}
	keys, until := keysToBytes(g.Keys), n.sharedGetDeadline(&g)
	for leased < len(keys) {
		out, err := n.bringChunks(ctx, op, &g, p2p.Delayed, keys[leased:], leased, until)
		if err != nil {
			return leased, err
		}
		if leased += out.Hits; out.Code != effects.OK {
			return leased, sharedGetError(ctx, op, &g, out, leased)
		}
	}
	return leased, nil
}

// Fetch passes the longest prefix that this node or its peers have to the engine's device code, batch by batch, as
// [Receiver.Fetch] does. It reads into a few pages (p2p_npu_buffer_size): one batch is read while the previous
// batch is scattered. Chunks that are not kept for the request yet are requested from peers first. Fetch returns
// the number of chunks, from the first key on, that the device code has taken.
//
// A chunk that no node has is NotFound, beside the prefix. The error is also NotFound if the lease of a kept chunk
// ended and the peer no longer has the chunk. A read that fails ends the fetch; then the engine computes the rest.
func (s Sharing) Fetch(ctx context.Context, f SharedFetch) (taken int, err error) {
	call := s.node.startCall("kvferry.shared_fetch", f.Trace)
	defer func() { call.end(f.Request, taken, err) }()
	until := s.node.sharedGetDeadline(&f.SharedGet)
	g := f.SharedGet
	g.Trace = call.trace.Context
	leased, failed := s.Lease(ctx, g)
	if leased == 0 {
		return 0, failed
	}
	taken, err = Receiver(s).Fetch(ctx, Fetch{
		Request: f.Request, Keys: f.Keys[:leased], Scatter: f.Scatter, ScatterDevice: f.ScatterDevice, ScatterMapped: f.ScatterMapped,
		Timeout: max(time.Until(until), 1),
	})
	if err != nil {
		return taken, err
	}
	return taken, failed
}
