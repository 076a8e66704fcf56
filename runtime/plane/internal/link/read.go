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
	begun   []bool // for each pair: the peer sends it, or has
	missing int    // pairs that are not whole
	sent    bool   // the peer said so, or nobody has to
}

// load reads pages of the peer, or asks it for them.
func (o *Outgoing) load(t *Transfer) {
	r := &Read{Transfer: t, begun: make([]bool, len(t.pairs)), missing: len(t.pairs)}
	t.read = r
	if r.sent = !o.sender.Load(r); !r.sent {
		t.send(KindRead, nil)
	}
}

// Grant is the grant that is read under.
func (r *Read) Grant() effects.GrantID { return r.grant }

// Expect says that the peer begins to send pair i. It may send each once: bytes that come after all was whole would go
// into a page that may be another's by then.
func (r *Read) Expect(i int) error {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	if r.begun[i] {
		return fmt.Errorf("%w: pair %d of transfer %d comes twice", ErrMalformed, i, r.number)
	}
	r.begun[i] = true
	return nil
}

// Whole says that a pair has been stored to its last byte. It is said once of each.
func (r *Read) Whole() {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	r.missing--
	r.maybeEnd()
}

// Fail ends the read.
func (r *Read) Fail(code effects.Code) {
	r.link.plane.mu.Lock()
	defer r.link.plane.mu.Unlock()
	r.stop(code)
}

// hear takes the peer's last word. Pages may still be on their way.
func (r *Read) hear(code effects.Code) error {
	if code == effects.Mismatch {
		code = effects.Refused // One may read less than was granted.
	}
	if code != effects.OK || !r.asked {
		return r.Transfer.hear(code)
	}
	r.sent = true
	r.maybeEnd()
	return nil
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
