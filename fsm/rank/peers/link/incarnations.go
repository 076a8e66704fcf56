package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// incarnations is the table of the incarnations of both directions, with an index by link.
type incarnations struct {
	rows   table.Slab[Incarnation]
	byLink table.Index // rows that have a link
	lost   bool        // a link was dropped since the last call of LostWay
}

func (t *incarnations) emptied(max int) incarnations {
	return incarnations{rows: t.rows.Emptied(max), byLink: t.byLink.Emptied()}
}

func (t *incarnations) get(h table.Handle) *Incarnation { return t.rows.Get(h) }

// enter inserts an incarnation. A row is always free, because a direction has no more than PeersMax peers. The attempt
// number of the link continues from the row's former use, so that no completion is mistaken for that of another
// incarnation.
func (t *incarnations) enter(who, us effects.Incarnation, peer table.Handle) table.Handle {
	h, x := t.rows.Add()
	*x = Incarnation{who: who, us: us, link: x.link.emptied(), buffers: x.buffers[:0], peer: peer,
		geometry: x.geometry[:0]}
	if x.inbound() {
		x.link.attempt++
	}
	return h
}

// exit removes a row. The caller ensures that nothing refers to the row any more.
func (t *incarnations) exit(h table.Handle) { t.rows.Remove(h) }

// made records the link to the pages of a peer. The caller has checked that the import belongs to the present attempt.
func (t *incarnations) made(row table.Handle, id effects.Link) {
	k := &t.get(row).link
	k.state, k.id = linked, id
	t.byLink.Add(uint64(id), row)
}

// drop gives up the link to the pages of a peer, if there is one. Nothing can arrive over the link afterwards.
func (t *incarnations) drop(v *env.Env, row table.Handle) {
	k := &t.get(row).link
	if k.id != 0 {
		t.byLink.Remove(uint64(k.id), row)
		v.Out.Drop(k.id)
		t.lost = true
	}
	k.state, k.id = unlinked, 0
}

// behind returns the row that a link leads to, or zero.
func (t *incarnations) behind(link effects.Link) table.Handle {
	for p := t.byLink.Seek(uint64(link)); p.Found(); p = t.byLink.Next(p) {
		if t.get(p.Handle()).link.id == link {
			return p.Handle()
		}
	}
	return 0
}

// Leads reports whether a link is in use.
func Leads(l *Links, link effects.Link) bool { return l.rows.behind(link) != 0 }

// ofClass returns the row of a class, or zero.
func (t *incarnations) ofClass(class int) table.Handle { return t.rows.At(int32(class) - 1) }

// classOf returns the fairness class of a row.
func classOf(row table.Handle) int { return int(row.Slot()) + 1 }

// firstPlain returns the class of the first peer without extensions.
func (t *incarnations) firstPlain() int { return t.rows.Max() + 1 }
