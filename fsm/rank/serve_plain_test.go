package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// Where nobody can write who presents no grant, no page is held for one: it is refused at once, in a form
// that its sender takes for a failure, and whoever comes next finds the pool as it was.
func TestPlainSenderIsRefusedWhereItCannotWrite(t *testing.T) {
	for _, leased := range []bool{false, true} {
		r := newServing(t, func(c *Config) { c.Leased = leased })
		q := r.requestPages(effects.Incarnation{}, numberedKeys(0, pagesMax), nil)
		if m := r.replies[q]; !m.AllocFailed || len(m.RemoteIndexes) > 0 {
			t.Errorf("leased %v: answered %+v, want an empty frame", leased, m)
		}
		if len(r.grants) > 0 || r.pool.FreePages() != pagesMax || r.rooms.Pending.Len() != 0 || r.rooms.Store.CountEntries() != 0 {
			t.Errorf("leased %v: %d grants, %d pages free, %d waiters, %d entries; want nothing held",
				leased, len(r.grants), r.pool.FreePages(), r.rooms.Pending.Len(), r.rooms.Store.CountEntries())
		}
	}
}

// Where it can, each has a share of its own: one that never writes what it was granted does not starve the next.
func TestPlainSendersHaveSharesOfTheirOwn(t *testing.T) {
	const half = pagesMax / 2
	r := newShared(t, half, func(c *Config) { c.Leased, c.Bearer = true, true })
	idle := func(m *protocol.AllocRequest) {}
	first := r.requestPages(effects.Incarnation{}, numberedKeys(0, half), idle)
	second := r.requestPages(effects.Incarnation{}, numberedKeys(100, half), idle)
	for i, q := range []effects.Request{first, second} {
		if pages, _, ok := r.grantedPages(q); !ok || len(pages) != half {
			t.Errorf("sender %d has %d pages, answered %v; want %d at once", i+1, len(pages), ok, half)
		}
	}
}
