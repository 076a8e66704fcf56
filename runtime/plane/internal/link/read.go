package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A Read is a batch that we read. The read succeeds when all pages are whole and, if the peer sends the pages, the
// peer has reported that every byte was under the lease when the peer read that byte (M3).
type Read struct {
	*Transfer

	// The fields below are guarded by the plane's mutex.
	begunPairs   []bool // for each pair: the peer has begun to send the pair
	missingPairs int    // pairs that are not whole
	confirmed    bool   // the peer has reported success, or reports nothing on this plane
}

// startRead reads pages of the peer, or requests the pages from the peer.
func (o *OutgoingLink) startRead(t *Transfer) {
	r := &Read{Transfer: t, begunPairs: make([]bool, len(t.pairs)), missingPairs: len(t.pairs)}
	t.read = r
	if r.confirmed = !o.sender.StartRead(r); !r.confirmed {
		t.sendRequest(KindRead, nil)
	}
}

// GrantID returns the id of the lease under which the pages are read.
func (r *Read) GrantID() effects.GrantID { return r.grant }

// BeginPair records that the peer begins to send pair i, and fails if the peer has sent this pair before: bytes that
// arrive after the read has completed would be stored into a page that may belong to another transfer by then (M3).
func (r *Read) BeginPair(i int) error {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	if r.begunPairs[i] {
		return fmt.Errorf("%w: the peer sends pair %d of transfer %d twice", ErrMalformed, i, r.number)
	}
	r.begunPairs[i] = true
	return nil
}

// PairStored records that pair i has been stored to its last byte, and must be called once for each pair. The pair is
// compared with its checksum first.
func (r *Read) PairStored(i int) {
	if !r.hasSum(i) {
		r.Fail(effects.Corrupt)
		return
	}
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	r.missingPairs--
	r.endIfComplete()
}

// hasSum reports whether the bytes of pair i have the checksum that the peer stated, or the read has ended meanwhile.
func (r *Read) hasSum(i int) bool {
	pair, pool := &r.pairs[i], r.link.plane.env.Pool
	if pool.Verifier() == nil || pair.Remote.Sum == 0 || !r.BeginAccess(1) {
		return true
	}
	defer r.EndAccess()
	page := pair.Local
	page.Sum = pair.Remote.Sum
	return pool.Verifier().Verify(page, pool.Bytes(page))
}

// Fail ends the read.
func (r *Read) Fail(code effects.Code) {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	r.stopTransfer(code)
}

// handleDone processes the peer's done message. Pages may still be on their way.
func (r *Read) handleDone(code effects.Code) error {
	if code == effects.Mismatch {
		code = effects.Refused // Less than the leased bytes may be read.
	}
	if code != effects.OK || !r.requested {
		return r.Transfer.handleDone(code)
	}
	r.confirmed = true
	r.endIfComplete()
	return nil
}

func (r *Read) endIfComplete() {
	if r.missingPairs == 0 && r.confirmed {
		r.finishTransfer(effects.OK)
	}
}

// FindRead returns the read with that number, or nil if the read has ended. The error says that there was never a read
// with that number.
func (o *OutgoingLink) FindRead(number uint64) (*Read, error) {
	o.plane.mu.Lock()
	defer o.plane.mu.Unlock()
	t := o.transfers[number]
	switch {
	case number == 0 || number > o.lastTransfer, t != nil && t.read == nil:
		return nil, fmt.Errorf("%w: pages for transfer %d, which is not a read; the newest transfer is %d", ErrMalformed, number,
			o.lastTransfer)
	case t == nil:
		return nil, nil
	}
	return t.read, nil
}

// WaitIdle waits until this process accesses none of our pages for the link. The link must be ending.
func (o *OutgoingLink) WaitIdle() {
	o.plane.mu.Lock()
	defer o.plane.mu.Unlock()
	for o.accesses > 0 {
		o.changed.Wait()
	}
}
