package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// A plain is a peer without our extensions, on planes that serve such. It has no identity, so its connection stands for
// it.
type plain struct {
	conn effects.Conn
	seen effects.Time
}

type plains []plain

// Bearer says whether the planes serve peers without our extensions.
func (l *Links) Bearer() bool { return l.cfg.Bearer }

// Plains is how many peers without our extensions are served at a time.
func (l *Links) Plains() int { return len(l.in.plains) }

// Plain is the class of a peer without our extensions, by its connection. The one unseen for longest makes room, if it
// has no pages and nothing waits for it; without any such there is none.
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
