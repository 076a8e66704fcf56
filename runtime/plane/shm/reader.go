package shm

import (
	"context"
	"fmt"
	"os"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A reader performs the reads of an outgoing link. The peer's process takes no part.
type reader struct {
	out     *link.Outgoing
	mapping *plane.Mapping
	permits *plane.PeerReadPermits
	copiers *copiers
	chooser *moverChooser
}

// NewSender maps the memory that the peer has passed.
func (m *medium) NewSender(_ context.Context, out *link.Outgoing, _ string, came []*os.File) (link.Sender, error) {
	if len(came) != filesPerFrame {
		return nil, fmt.Errorf("%w: %d files came with the welcome; %d are expected", link.ErrMalformed, len(came),
			filesPerFrame)
	}
	b := out.PeerBuffer()
	mapping, err := plane.MapPool(came[0].Fd(), came[1].Fd(), b.Pages, b.PageBytes)
	if err != nil {
		return nil, err
	}
	permits, err := plane.MapReadPermits(came[2].Fd(), b.Pages)
	if err != nil {
		_ = mapping.Unmap()
		return nil, err
	}
	return &reader{out: out, mapping: mapping, permits: permits, copiers: m.copiers, chooser: m.chooser}, nil
}

// Send does nothing: the target copies the pages of a push, given the push's frame and permit.
func (r *reader) Send(*link.Transfer) {}

// StartRead implements link.Sender.
func (r *reader) StartRead(l *link.Read) (ask bool) {
	r.copiers.add(&readBatch{Read: l, reader: r, move: r.chooser.moverFor(l.Pairs())})
	return false
}

// Close unmaps the peer's memory. Jobs that are still queued find that their read is no longer wanted.
func (r *reader) Close() {
	r.out.WaitIdle()
	_, _ = r.mapping.Unmap(), r.permits.Unmap() // Both are mapped and are unmapped once, so this cannot fail.
}

// A readBatch is a read of ours, which copies into our pages as long as the peer's lease stands.
type readBatch struct {
	*link.Read
	reader *reader
	move   plane.Mover
}

func (r *readBatch) copyPage(i int) (wanted bool) {
	if !r.Begin(1) {
		return false
	}
	code := r.fetch(i)
	if r.End(); code == effects.OK {
		r.PairStored()
	} else {
		r.Fail(code)
	}
	return true
}

// fetch copies one page. The link has checked that the pair lies within both pools.
func (r *readBatch) fetch(i int) effects.Code {
	pair, at := r.Pairs()[i], r.reader
	permit, code := at.permits.Permit(r.Grant(), at.out.Hello().From, pair.Remote.Index, pair.Local.Length)
	if code != effects.OK {
		return code
	}
	dst := at.out.Pool().Bytes(pair.Local)
	// With any other code than OK, the peer has taken its page back and our page holds garbage.
	code = at.mapping.Copy(dst, pair.Remote.Index, pair.Remote.Generation, permit, r.move)
	if code == effects.Cancelled {
		return effects.Withdrawn // The permit is that of the lease, which was revoked.
	}
	return code
}
