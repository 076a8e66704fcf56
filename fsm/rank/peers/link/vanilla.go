package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// vanillaPeer is a peer without kvferry's extensions, on planes that serve such peers. A plain peer has no incarnation
// name and is identified by its connection.
type vanillaPeer struct {
	conn   effects.Conn
	seenAt effects.Time
	realm  effects.Realm // the trust domain that the connection proved
}

type vanillaPeers []vanillaPeer

// ServesVanilla reports whether the planes serve peers without kvferry's extensions.
func (l *Links) ServesVanilla() bool { return l.cfg.Bearer }

// VanillasMax returns the number of peers without extensions that are served at a time.
func (l *Links) VanillasMax() int { return len(l.in.vanillas) }

// VanillaClass returns the class of a peer without extensions, by the connection of its message. A new connection takes
// the class of the peer that was seen longest ago among those that have no pages and for which nothing waits.
// VanillaClass reports false if there is none.
func (l *Links) VanillaClass(v *env.Env, ev *effects.Received, classRows []uint32) (class int, ok bool) {
	return l.in.vanillas.assignClass(v, ev, l.rows.firstVanillaClass(), classRows)
}

func (p vanillaPeers) assignClass(v *env.Env, ev *effects.Received, first int, classRows []uint32) (class int, ok bool) {
	oldest := -1
	for i := range p {
		if p[i].conn == ev.Conn {
			p[i].seenAt = v.Now
			return first + i, true
		}
		idle := v.Pools.ClassUse(first+i) == 0 && classRows[first+i] == 0
		if idle && (oldest < 0 || p[i].seenAt < p[oldest].seenAt) {
			oldest = i
		}
	}
	if oldest < 0 {
		return 0, false
	}
	p[oldest] = vanillaPeer{conn: ev.Conn, seenAt: v.Now, realm: ev.Realm}
	v.Pools.ReassignClass(first + oldest)
	v.Pools.SetOrigin(first+oldest, ev.Origin)
	return first + oldest, true
}
