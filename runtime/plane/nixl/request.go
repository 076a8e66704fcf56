//go:build cgo && linux

package nixl

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// Import implements plane.Plane.
func (p *Plane) Import(e *effects.Import) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		p.env.Sink.Post(&effects.Imported{Corr: e.Corr, Code: effects.Closed})
	case len(p.outgoing) >= p.cfg.Links:
		p.seldom.Warn("a peer cannot be linked to: too many peers", "", "links", p.cfg.Links, "remedy", "raise its Links")
		p.env.Sink.Post(&effects.Imported{Corr: e.Corr, Code: effects.TooMany})
	default:
		o := newOutgoing(p, e.Corr, e.Peer, e.Us)
		p.outgoing[o] = struct{}{}
		blob := slices.Clone(e.Blob)
		p.wg.Go(func() { o.serve(blob) })
	}
}

// Drop implements plane.Plane.
func (p *Plane) Drop(link effects.Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.links[link]; o != nil {
		o.happens(communicator.Event{Kind: communicator.Drop})
	}
}

// Transfer implements plane.Plane.
func (p *Plane) Transfer(e *effects.Transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.links[e.Link]
	if code := p.admit(o, e); code != effects.OK {
		p.env.Sink.Post(&effects.TransferDone{Corr: e.Corr, Code: code, Settled: true, At: plane.Now()})
		return
	}
	most := epochs.Limit{Pieces: p.cfg.Descriptors, Bytes: p.cfg.BatchBytes}
	j := &job{read: e.Read, batches: epochs.Batches(e.Pairs, &e.Gather, p.pool.Address, o.address, most)}
	wanted := communicator.Event{
		Kind: communicator.Transfer, Corr: e.Corr, Grant: e.Grant, Since: e.Since, NotAfter: e.NotAfter,
		Batches: len(j.batches),
	}
	p.transfers[e.Corr] = o
	o.Push(func(now effects.Time) {
		o.jobs[wanted.Corr] = j
		o.feed(now, wanted)
	})
}

// admit says why a transfer is not for the link. That a grant covers the pages is the machine's affair: the peer cannot
// look.
func (p *Plane) admit(o *outgoing, e *effects.Transfer) effects.Code {
	switch {
	case p.closed:
		return effects.Closed
	case o == nil:
		return effects.PeerLost
	case e.Peer != o.peer:
		return effects.Stale
	case len(p.transfers) >= p.env.Bounds.Transfers:
		return effects.TooMany
	case max(len(e.Pairs), len(e.Gather.Pages)) > p.env.Bounds.PagesPerBatch:
		return effects.TooLarge
	case len(e.Pairs) == 0, !e.Gather.Fits(e.Pairs), e.Gather.Layers > 0 && e.Read:
		return effects.Invalid
	}
	for _, page := range e.Gather.Pages {
		if !p.pool.Has(page) {
			return effects.Invalid
		}
	}
	buffer := o.welcome.buffer
	for _, pair := range e.Pairs {
		switch {
		case pair.Remote.Buffer != buffer.ID:
			return effects.Stale
		case pair.Remote.Index >= buffer.Pages, e.Gather.Layers == 0 && !p.pool.Has(pair.Local):
			return effects.Invalid
		case uint64(pair.Local.Length) > buffer.PageBytes:
			return effects.TooLarge
		}
	}
	return effects.OK
}

// Cancel implements plane.Plane.
func (p *Plane) Cancel(corr effects.Corr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.transfers[corr]; o != nil {
		o.happens(communicator.Event{Kind: communicator.Cancel, Corr: corr})
	}
}
