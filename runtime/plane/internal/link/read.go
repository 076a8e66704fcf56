package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A Read is one batch that we read. It ends well when all its pages are whole and, where the peer sends them, the peer
// has said that every byte was under the grant when it read it.
type Read struct {
	*Transfer

	// Under the plane's mutex.
	whole   []bool // for each pair
	missing int    // pairs that are not whole
	sent    bool   // the peer said so, or nobody has to
}

// load reads pages of the peer, or asks it for them.
func (o *Outgoing) load(t *Transfer) {
	r := &Read{Transfer: t, whole: make([]bool, len(t.pairs)), missing: len(t.pairs)}
	t.read = r
	if r.sent = !o.sender.Load(r); !r.sent {
		t.send(KindRead, nil)
	}
}

// Grant is the grant that is read under.
func (r *Read) Grant() effects.GrantID { return r.grant }

// Whole says that pair i has been stored to its last byte. A peer that sends it twice spoils its own bytes, within the read.
func (r *Read) Whole(i int) {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	if !r.whole[i] {
		r.whole[i] = true
		r.missing--
		r.maybeEnd()
	}
}

// Fail ends the read.
func (r *Read) Fail(code effects.Code) {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	r.stop(code)
}

// told is the peer's last word.
func (r *Read) told(code effects.Code) {
	if code != effects.OK {
		r.finish(code)
		return
	}
	r.sent = true
	r.maybeEnd()
}

func (r *Read) maybeEnd() {
	if r.missing == 0 && r.sent {
		r.finish(effects.OK)
	}
}

// Find returns the read of a number; nil says that it has ended. It fails where there never was one.
func (o *Outgoing) Find(number uint64) (*Read, error) {
	o.plane.mu.Lock()
	defer o.plane.mu.Unlock()
	t := o.transfers[number]
	switch {
	case number == 0 || number > o.last, t != nil && t.read == nil:
		return nil, fmt.Errorf("%w: pages for transfer %d, which is no read; the newest is %d", ErrMalformed, number, o.last)
	case t == nil:
		return nil, nil
	}
	return t.read, nil
}

// Still waits until this process accesses none of our pages for the link. The link must be ending.
func (o *Outgoing) Still() {
	o.plane.mu.Lock()
	defer o.plane.mu.Unlock()
	for o.busy > 0 {
		o.left.Wait()
	}
}
