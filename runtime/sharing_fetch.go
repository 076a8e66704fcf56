package runtime

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
)

// SharedFetch names chunks that an engine fetches from where they lie: here, or at peers.
type SharedFetch struct {
	SharedGet
	Scatter Scatter // one of them, as with Fetch
	Device  DeviceScatter
	Places  PlaceScatter
}

// Keep has peers lend what they have, and leaves it with them until it is fetched (p2p_delay_pull): it says how many
// chunks, from the first key on, are here or kept for the request. No page of this node is theirs meanwhile. They are
// kept for as long as peers lend them (their p2p_pull_pending_ttl), and the connection to them lasts; Abandon gives
// them back.
//
// Where a chunk is missing the error is NotFound and says which is the first; else it is as with [Sharing.Get].
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

// Fetch hands the longest prefix that is here, or that peers have, to the engine's device code batch by batch, as
// [Receiver.Fetch] does: it reads into a few pages (p2p_npu_buffer_size), one batch while the one before is scattered.
// What is not kept for the request by then is asked for first. It returns how many chunks, from the first key on, were
// taken.
//
// A chunk that is nowhere is NotFound, beside the prefix. So is what was kept and lapsed, if its peer has it no more. A
// read that fails ends the fetch: compute the rest.
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
