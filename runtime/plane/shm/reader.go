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
	out     *link.OutgoingLink
	mapping *plane.Mapping
	permits *plane.PeerReadPermits
	copiers *copiers
	chooser *moverChooser
}

// NewSender maps the memory that the peer has passed.
func (m *medium) NewSender(_ context.Context, out *link.OutgoingLink, _ string, files []*os.File) (link.Sender, error) {
	if len(files) != filesPerFrame {
		return nil, fmt.Errorf("%w: %d files came with the welcome; %d are expected", link.ErrMalformed, len(files),
			filesPerFrame)
	}
	b := out.PeerBuffer()
	mapping, err := plane.MapPool(files[0].Fd(), files[1].Fd(), b.Pages, b.PageBytes)
	if err != nil {
		return nil, err
	}
	permits, err := plane.MapReadPermits(files[2].Fd(), b.Pages)
	if err != nil {
		_ = mapping.Unmap()
		return nil, err
	}
	return &reader{out: out, mapping: mapping, permits: permits, copiers: m.copiers, chooser: m.chooser}, nil
}

// Send does nothing: the target copies the pages of a push, given the push's frame and permit.
func (r *reader) Send(*link.Transfer) {}

// StartRead implements link.Sender.
func (r *reader) StartRead(l *link.Read) (request bool) {
	r.copiers.addBatch(&readBatch{Read: l, reader: r, move: r.chooser.moverFor(l.Pairs())})
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
	if !r.BeginAccess(1) {
		return false
	}
	code := r.fetchPage(i)
	if r.EndAccess(); code == effects.OK {
		r.PairStored(i)
	} else {
		r.Fail(code)
	}
	return true
}

// fetchPage copies one page. The link has checked that the pair lies within both pools.
func (r *readBatch) fetchPage(i int) effects.Code {
	pair, at := r.Pairs()[i], r.reader
	permit, code := at.permits.Permit(r.GrantID(), at.out.Hello().From, pair.Remote.Index, pair.Local.Length)
	if code != effects.OK {
		return code
	}
	dst := at.out.Pool().Bytes(pair.Local)
	// With any other code than OK, the peer has taken its page back and our page holds garbage.
	code = at.mapping.CopyPage(dst, pair.Remote.Index, pair.Remote.Generation, permit, r.move)
	if code == effects.Cancelled {
		return effects.Withdrawn // The permit is that of the lease, which was revoked.
	}
	return code
}
