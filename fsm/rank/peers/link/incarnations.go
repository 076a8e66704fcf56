package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// incarnations is the table of the incarnations of both directions, with an index by link.
type incarnations struct {
	rows        table.Slab[Incarnation]
	byLink      table.Index // rows that have a link
	linkDropped bool        // a link was dropped since the last call of TakeLinkDropped
}

func (t *incarnations) recycle(max int) incarnations {
	return incarnations{rows: t.rows.Recycle(max), byLink: t.byLink.Recycle()}
}

func (t *incarnations) get(h table.Handle) *Incarnation { return t.rows.Get(h) }

// addRow inserts an incarnation. A row is always free, because a direction has no more than PeersMax peers. The attempt
// number of the link continues from the row's former use, so that no completion is mistaken for that of another
// incarnation.
func (t *incarnations) addRow(peerID, selfID effects.Incarnation, outbound table.Handle) table.Handle {
	h, x := t.rows.Add()
	*x = Incarnation{peerID: peerID, selfID: selfID, link: x.link.recycle(), buffers: x.buffers[:0], outbound: outbound,
		geometry: x.geometry[:0]}
	if x.isInbound() {
		x.link.attempt++
	}
	return h
}

// removeRow removes a row. The caller ensures that nothing refers to the row any more.
func (t *incarnations) removeRow(h table.Handle) { t.rows.Remove(h) }

// setLink records the link to the pages of a peer. The caller has checked that the import belongs to the present
// attempt.
func (t *incarnations) setLink(row table.Handle, id effects.Link) {
	k := &t.get(row).link
	k.state, k.id = linkUp, id
	t.byLink.Add(uint64(id), row)
}

// dropLink gives up the link to the pages of a peer, if there is one. Nothing can arrive over the link afterwards.
func (t *incarnations) dropLink(v *env.Env, row table.Handle) {
	k := &t.get(row).link
	if k.id != 0 {
		t.byLink.Remove(uint64(k.id), row)
		v.Out.Drop(k.id)
		t.linkDropped = true
	}
	k.state, k.id = linkDown, 0
}

// rowByLink returns the row that a link leads to, or zero.
func (t *incarnations) rowByLink(link effects.Link) table.Handle {
	for p := t.byLink.Find(uint64(link)); p.Found(); p = t.byLink.Next(p) {
		if t.get(p.Handle()).link.id == link {
			return p.Handle()
		}
	}
	return 0
}

// HasLink reports whether a link is in use.
func HasLink(l *Links, link effects.Link) bool { return l.rows.rowByLink(link) != 0 }

// rowOfClass returns the row of a class, or zero.
func (t *incarnations) rowOfClass(class int) table.Handle { return t.rows.At(int32(class) - 1) }

// classOf returns the fairness class of a row.
func classOf(row table.Handle) int { return int(row.Slot()) + 1 }

// firstVanillaClass returns the class of the first peer without extensions.
func (t *incarnations) firstVanillaClass() int { return t.rows.Max() + 1 }
