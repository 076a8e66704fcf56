package shm

import (
	"fmt"
	"os"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A receiver stores the pushes of a peer.
type receiver struct {
	in      *link.IncomingLink
	mapping *plane.Mapping
	permits *plane.PeerPermits
	copiers *copiers
	chooser *moverChooser
}

func (m *medium) NewReceiver(in *link.IncomingLink, files []*os.File) (link.Receiver, error) {
	if len(files) != filesPerFrame {
		return nil, fmt.Errorf("%w: %d files came with the hello; %d are expected", link.ErrMalformed, len(files),
			filesPerFrame)
	}
	b := in.Hello().Buffer
	mapping, err := plane.MapPool(files[0].Fd(), files[1].Fd(), b.Pages, b.PageBytes)
	if err != nil {
		return nil, err
	}
	permits, err := plane.MapPermits(files[2].Fd())
	if err != nil {
		_ = mapping.Unmap()
		return nil, err
	}
	return &receiver{in: in, mapping: mapping, permits: permits, copiers: m.copiers, chooser: m.chooser}, nil
}

func (r *receiver) Receive(p *link.Push) {
	job := &pushBatch{Push: p, mapping: r.mapping, permit: r.permits.Permit(p.Permit()),
		move: r.chooser.moverFor(p.Pairs())}
	if !p.IsSmall() {
		r.copiers.addBatch(job)
		return
	}
	for i := range p.Pairs() { // Copying here takes less time than waking a copy thread.
		if !job.copyPage(i) {
			return
		}
	}
}

// HasPermit implements link.Receiver.
func (r *receiver) HasPermit(slot uint32) bool { return r.permits.Has(slot) }

// Close unmaps the peer's memory. Jobs that are still queued find that their push has ended.
func (r *receiver) Close() {
	r.in.WaitIdle()
	_, _ = r.mapping.Unmap(), r.permits.Unmap() // Both are mapped and are unmapped once, so this cannot fail.
}

// A pushBatch is a push of a peer, which is copied into our pages under our grant as long as the push's permit
// stands.
type pushBatch struct {
	*link.Push
	mapping *plane.Mapping
	permit  plane.Permit
	move    plane.Mover
}

func (p *pushBatch) copyPage(i int) (wanted bool) {
	if wanted = p.BeginPair(i); wanted {
		p.EndPair(i, p.storePage(i))
	}
	return wanted
}

// storePage copies one page. The link has checked that the pair lies within both pools.
func (p *pushBatch) storePage(i int) effects.Code {
	claim := p.Claim()
	dst := claim.Hold(i)
	if dst == nil {
		return effects.Withdrawn
	}
	defer claim.Release(i)
	// With any other code than OK, the peer has taken its page back and our page holds garbage.
	for piece := range p.Pieces(i) {
		into, from := dst[piece.At:piece.At+piece.Bytes], piece.Page
		if code := p.mapping.CopyPart(into, from.Index, piece.From, from.Generation, p.permit, p.move); code != effects.OK {
			return code
		}
	}
	return effects.OK
}
