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
	kindDesk uint8 = iota + 1 // a connection; the subject is the desk
	// A reply to a question, or the timeout of a question; Attempt is the desk.
	kindLookup
)

func (l *Lookups) deskRef(n int) kernel.Ref {
	return kernel.Ref{Owner: l.cfg.Asker, Kind: kindDesk, Subject: table.Handle(n + 1)}
}

func (l *Lookups) askRef(h table.Handle, n int) kernel.Ref {
	return kernel.Ref{Owner: l.cfg.Asker, Kind: kindLookup, Subject: h, Attempt: uint64(n + 1)}
}

// next queues a question at the next directory. If no directory is left or available, or [Config.Tries] is exhausted,
// the question ends without holders. Directories in backoff are skipped.
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

// choose returns the desk for a question: of the desks that the question has not tried and that are not in backoff,
// the desk with the greatest weight for the first chunk. It returns -1 if there is none.
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

// window returns the number of requests that may be in flight to a directory.
func (l *Lookups) window(n int) uint16 {
	if l.cfg.Directories[n].Plain {
		return 1
	}
	return l.cfg.Window
}

// pump sends the questions that wait at a desk, or opens the connection.
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

// Step handles a completion or the loss of a connection.
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

// Due handles the timeout of a question at its directory. If the question was sent, the connection is closed, and the
// directory is in backoff for a while.
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

// close closes the connection to a directory, so that no late reply can arrive. The questions there move to the next
// directory.
func (l *Lookups) close(v *env.Env, n int) {
	l.desks[n].line.close(v, &l.pace)
	l.scatter(v, n)
}

// scatter moves all questions of a desk to the next desks, in this step. At most [Config.Questions] (256 by default)
// are moved, and each examines every desk once.
func (l *Lookups) scatter(v *env.Env, n int) {
	d := &l.desks[n]
	for _, from := range [...]*table.List{&d.asked, &d.waiting} {
		for h := from.Front(); h != 0; h = from.Front() {
			l.leave(v, h)
			l.next(v, h)
		}
	}
}

// replied handles a reply. If the message is not a reply to a lookup, the connection is closed and the next directory
// is asked.
func (l *Lookups) replied(v *env.Env, n int, h table.Handle, body []byte) {
	m := &l.read
	if m.Decode(body, &l.cfg.Wire) != nil {
		l.close(v, n)
		return
	}
	l.desks[n].line.fails = 0
	q := l.rows.Get(h)
	if q == nil { // The question was cancelled.
		return
	}
	holders := l.holders(q)
	if len(holders) > 0 && l.cfg.Keep > 0 {
		l.kept.keep(v.Now.Add(l.cfg.Keep), q, holders)
	}
	l.end(v, h, effects.OK, holders)
}

// holders returns the valid holders of a reply: those with a usable address, excluding the worker's own instance,
// with hit counts limited to the number of requested chunks.
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
