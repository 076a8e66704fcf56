package registrar

import (
	"math/bits"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Kinds of completions of lookups.
const (
	kindDesk   uint8 = iota + 1 // its connection; the subject is which desk
	kindLookup                  // an answer, or the end of patience with it; Attempt is which desk
)

func (l *Lookups) deskRef(n int) kernel.Ref {
	return kernel.Ref{Owner: l.cfg.Asker, Kind: kindDesk, Subject: table.Handle(n + 1)}
}

func (l *Lookups) askRef(h table.Handle, n int) kernel.Ref {
	return kernel.Ref{Owner: l.cfg.Asker, Kind: kindLookup, Subject: h, Attempt: uint64(n + 1)}
}

// next has a question wait at the next desk, or ends it if there is none: then no directory can be asked now. Those
// that cannot be reached just now are passed over.
func (l *Lookups) next(v *env.Env, h table.Handle) {
	q := l.rows.Get(h)
	n := -1
	if bits.OnesCount64(q.tried) < l.cfg.Tries {
		n = l.choose(v.Now, q)
	}
	if n < 0 {
		code := effects.Unreachable
		if q.tried != 0 {
			code = effects.Expired
		}
		l.end(v, h, code, nil)
		return
	}
	q.desk, q.sent = n, false
	q.tried |= 1 << n
	l.rows.PushBack(&l.desks[n].waiting, h)
	v.Timers.Set(&q.timer, v.Now.Add(l.cfg.Asking), l.askRef(h, n))
	l.pump(v, n)
}

// choose is the desk that a question goes to: that with the most weight for its first chunk, of those that it has not
// tried and that are not left alone; -1: there is none.
func (l *Lookups) choose(now effects.Time, q *question) int {
	best, most := -1, uint64(0)
	for n := range l.desks {
		d := &l.desks[n]
		if q.tried>>n&1 != 0 || d.line.conn == 0 && now < d.line.again {
			continue
		}
		weight := (q.hashes[0].Bits ^ l.secret ^ uint64(n+1)*0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15
		if weight ^= weight >> 32; best < 0 || weight > most {
			best, most = n, weight
		}
	}
	return best
}

// window is how many questions a desk takes at a time.
func (l *Lookups) window(n int) uint16 {
	if l.cfg.Directories[n].Plain {
		return 1
	}
	return l.cfg.Window
}

// pump asks what waits at a desk.
func (l *Lookups) pump(v *env.Env, n int) {
	d := &l.desks[n]
	for h := d.waiting.Front(); h != 0; h = d.waiting.Front() {
		switch {
		case d.line.ready(l.window(n)):
			q := l.rows.Get(h)
			q.sent = true
			l.rows.Unlink(&d.waiting, h)
			l.rows.PushBack(&d.asked, h)
			m := protocol.BatchedP2PLookupMsg{Hashes: q.hashes, Worker: l.cfg.Worker.name()}
			d.line.send(v, l.askRef(h, n), m.Append(v.Out.Arena()), l.cfg.Asking)
		case d.line.mayOpen(v.Now):
			d.line.open(v, l.deskRef(n), effects.ChannelDirectory, l.window(n), l.cfg.Directories[n].Asks)
			return
		default:
			return
		}
	}
}

// Step takes a completion.
func (l *Lookups) Step(v *env.Env, ref kernel.Ref, ev effects.Event) {
	n := int(ref.Subject.Slot())
	if ref.Kind == kindLookup {
		n = int(ref.Attempt) - 1
	}
	d := &l.desks[n]
	switch x := ev.(type) {
	case *effects.Opened:
		if d.line.opened(v, l.deskRef(n), x, &l.pace) {
			l.pump(v, n)
		} else {
			l.scatter(v, n)
		}
	case *effects.Replied:
		if d.line.done() {
			l.replied(v, n, ref.Subject, x.Body)
		}
		l.pump(v, n)
	case *effects.Unanswered:
		if d.line.done() {
			l.close(v, n)
		}
		l.pump(v, n)
	case *effects.ConnLost:
		l.close(v, n)
	default:
		kernel.Foreign("who looks chunks up")
	}
}

// Due ends the patience of a question with its desk, which is left alone for a while if it was asked.
func (l *Lookups) Due(v *env.Env, ref kernel.Ref) {
	q := l.rows.Get(ref.Subject)
	q.timer = 0
	if q.sent {
		l.close(v, q.desk)
		return
	}
	l.leave(v, ref.Subject)
	l.next(v, ref.Subject)
}

// close gives the connection of a desk up: nothing can come late by it. Who has asked there asks the next.
func (l *Lookups) close(v *env.Env, n int) {
	l.desks[n].line.close(v, &l.pace)
	l.scatter(v, n)
}

// scatter has all questions of a desk wait at others: in one step, each of [Config.Questions] at the most, of which 256
// are the default. Each looks at every desk once.
func (l *Lookups) scatter(v *env.Env, n int) {
	d := &l.desks[n]
	for _, from := range [...]*table.List{&d.asked, &d.waiting} {
		for h := from.Front(); h != 0; h = from.Front() {
			l.leave(v, h)
			l.next(v, h)
		}
	}
}

// replied takes an answer. One that is no answer to a lookup is none: the next directory is asked.
func (l *Lookups) replied(v *env.Env, n int, h table.Handle, body []byte) {
	m := &l.read
	if m.Decode(body, &l.cfg.Wire) != nil {
		l.close(v, n)
		return
	}
	l.desks[n].line.fails = 0
	q := l.rows.Get(h)
	if q == nil { // It was given up.
		return
	}
	holders := l.holders(q)
	if len(holders) > 0 && l.cfg.Keep > 0 {
		l.kept.keep(v.Now.Add(l.cfg.Keep), q, holders)
	}
	l.end(v, h, effects.OK, holders)
}

// holders are those of an answer that can be: whom one can reach, and who has no more than was asked for.
func (l *Lookups) holders(q *question) (all []Holder) {
	for i := range l.read.Holders {
		x := &l.read.Holders[i]
		at, err := protocol.ParseEndpoint(string(x.PeerInitURL))
		if err != nil || string(x.InstanceID) == l.cfg.Worker.Instance || len(all) == l.cfg.Holders {
			continue
		}
		all = append(all, Holder{
			Instance: string(x.InstanceID), Location: string(x.Location), At: effects.Addr{Host: at.Host, Port: at.Port},
			Chunks: int(min(uint64(x.HitChunks), uint64(len(q.hashes)))),
		})
	}
	return all
}
