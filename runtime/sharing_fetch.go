package runtime

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
)

// SharedFetch names chunks that an engine fetches from this node or from peers with its own device code.
type SharedFetch struct {
	SharedGet
	Scatter Scatter // exactly one of these three is set, as with Fetch
	Device  DeviceScatter
	Places  PlaceScatter
}

// Keep makes peers lend the chunks that they have, and leaves the chunks at the peers until they are fetched
// (p2p_delay_pull). It returns the number of chunks, from the first key on, that are here or kept for the request.
// Kept chunks use no page of this node. They are kept for as long as the peers lend them (the peers'
// p2p_pull_pending_ttl) and the connection to the peers lasts; Abandon gives them back.
//
// If a chunk is missing, the error is NotFound and names the first missing chunk; other errors are as with
// [Sharing.Get].
func (s Sharing) Keep(ctx context.Context, g SharedGet) (kept int, err error) {
	const op = "keep"
	n := s.node
	if err := n.checkSharedGet(op, &g); err != nil {
		return 0, err
	}
	if !n.cfg.Keeps {
		e := wrong(op, "p2p_delay_pull", "false", "true", "set p2p_delay_pull: true, or get them")
		e.Code = effects.Unsupported
		return 0, e
	}
	keys, until := keyBytes(g.Keys), n.sharedUntil(&g)
	for kept < len(keys) {
		out, err := n.bring(ctx, op, &g, p2p.Delayed, keys[kept:], kept, until)
		if err != nil {
			return kept, err
		}
		if kept += out.Hits; out.Code != effects.OK {
			return kept, sharedEnded(ctx, op, &g, out, kept)
		}
	}
	return kept, nil
}

// Fetch passes the longest prefix that this node or its peers have to the engine's device code, batch by batch, as
// [Receiver.Fetch] does. It reads into a few pages (p2p_npu_buffer_size): one batch is read while the previous
// batch is scattered. Chunks that are not kept for the request yet are requested from peers first. Fetch returns
// the number of chunks, from the first key on, that the device code has taken.
//
// A chunk that no node has is NotFound, beside the prefix. The error is also NotFound if the lease of a kept chunk
// ended and the peer no longer has the chunk. A read that fails ends the fetch; then the engine computes the rest.
func (s Sharing) Fetch(ctx context.Context, f SharedFetch) (taken int, err error) {
	until := s.node.sharedUntil(&f.SharedGet)
	kept, failed := s.Keep(ctx, f.SharedGet)
	if kept == 0 {
		return 0, failed
	}
	taken, err = Receiver(s).Fetch(ctx, Fetch{
		Request: f.Request, Keys: f.Keys[:kept], Scatter: f.Scatter, Device: f.Device, Places: f.Places,
		Patience: max(time.Until(until), 1),
	})
	if err != nil {
		return taken, err
	}
	return taken, failed
}
