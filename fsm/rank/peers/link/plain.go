package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// plain is a peer without kvferry's extensions, on planes that serve such peers. A plain peer has no incarnation name
// and is identified by its connection.
type plain struct {
	conn effects.Conn
	seen effects.Time
}

type plains []plain

// Bearer reports whether the planes serve peers without kvferry's extensions.
func (l *Links) Bearer() bool { return l.cfg.Bearer }

// Plains returns the number of peers without extensions that are served at a time.
func (l *Links) Plains() int { return len(l.in.plains) }

// Plain returns the class of a peer without extensions, by its connection. A new connection takes the class of the peer
// that was seen longest ago among those that have no pages and for which nothing waits. Plain reports false if there is
// none.
func (l *Links) Plain(v *env.Env, conn effects.Conn, busy []uint32) (class int, ok bool) {
	return l.in.plains.class(v, conn, l.rows.firstPlain(), busy)
}

func (p plains) class(v *env.Env, conn effects.Conn, first int, busy []uint32) (class int, ok bool) {
	oldest := -1
	for i := range p {
		if p[i].conn == conn {
			p[i].seen = v.Now
			return first + i, true
		}
		idle := v.Pools.ClassUse(first+i) == 0 && busy[first+i] == 0
		if idle && (oldest < 0 || p[i].seen < p[oldest].seen) {
			oldest = i
		}
	}
	if oldest < 0 {
		return 0, false
	}
	p[oldest] = plain{conn: conn, seen: v.Now}
	v.Pools.Disown(first + oldest)
	return first + oldest, true
}
