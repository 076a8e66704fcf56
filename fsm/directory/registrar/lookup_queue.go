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
	kindConn uint8 = iota + 1 // a connection; the subject is the desk
	// A reply to a question, or the timeout of a question; Attempt is the desk.
	kindLookup
)

func (l *Lookups) queueRef(n int) kernel.Ref {
	return kernel.Ref{Owner: l.cfg.LookupOwner, Kind: kindConn, Subject: table.Handle(n + 1)}
}

func (l *Lookups) lookupRef(h table.Handle, n int) kernel.Ref {
	return kernel.Ref{Owner: l.cfg.LookupOwner, Kind: kindLookup, Subject: h, Attempt: uint64(n + 1)}
}

// askNext queues a question at the next directory. If no directory is left or available, or [Config.TriesMax] is
// exhausted, the question ends without holders. Directories in backoff are skipped.
func (l *Lookups) askNext(v *env.Env, h table.Handle) {
	q := l.rows.Get(h)
	n := -1
	if bits.OnesCount64(q.triedMask) < l.cfg.TriesMax {
		n = l.chooseQueue(v.Now, q)
	}
	if n < 0 {
		code := effects.Unreachable
		if q.triedMask != 0 {
			code = effects.Expired
		}
		l.finishLookup(v, h, code, nil)
		return
	}
	q.queue, q.sent = n, false
	q.triedMask |= 1 << n
	l.rows.PushBack(&l.queues[n].unsent, h)
	v.Timers.Set(&q.timer, v.Now.Add(l.cfg.LookupTimeout), l.lookupRef(h, n))
	l.pumpQueue(v, n)
}

// chooseQueue returns the desk for a question: of the desks that the question has not tried and that are not in
// backoff, the desk with the greatest weight for the first chunk. It returns -1 if there is none.
func (l *Lookups) chooseQueue(now effects.Time, q *lookup) int {
	best, greatest := -1, uint64(0)
	for n := range l.queues {
		d := &l.queues[n]
		if q.triedMask>>n&1 != 0 || d.conn.conn == 0 && now < d.conn.openAfter {
			continue
		}
		weight := (q.hashes[0].Bits ^ l.secret ^ uint64(n+1)*0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15
		if weight ^= weight >> 32; best < 0 || weight > greatest {
			best, greatest = n, weight
		}
	}
	return best
}

// windowOf returns the number of requests that may be in flight to a directory.
func (l *Lookups) windowOf(n int) uint16 {
	if l.cfg.Directories[n].Plain {
		return 1
	}
	return l.cfg.Window
}

// pumpQueue sends the questions that wait at a desk, or opens the connection.
func (l *Lookups) pumpQueue(v *env.Env, n int) {
	d := &l.queues[n]
	for h := d.unsent.Front(); h != 0; h = d.unsent.Front() {
		switch {
		case d.conn.isReady(l.windowOf(n)):
			q := l.rows.Get(h)
			q.sent = true
			l.rows.Unlink(&d.unsent, h)
			l.rows.PushBack(&d.inFlight, h)
			m := protocol.BatchedP2PLookupMsg{Hashes: q.hashes, Worker: l.cfg.Worker.wireWorker()}
			d.conn.sendRequest(v, l.lookupRef(h, n), m.Append(v.Out.Arena()), l.cfg.LookupTimeout)
		case d.conn.mayOpen(v.Now):
			d.conn.openConn(v, l.queueRef(n), effects.ChannelDirectory, l.windowOf(n), l.cfg.Directories[n].RequestAddr)
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
	d := &l.queues[n]
	switch x := ev.(type) {
	case *effects.Opened:
		if d.conn.onOpened(v, l.queueRef(n), x, &l.pace) {
			l.pumpQueue(v, n)
		} else {
			l.moveLookups(v, n)
		}
	case *effects.Replied:
		if d.conn.completeOne() {
			l.handleReply(v, n, ref.Subject, x.Body)
		}
		l.pumpQueue(v, n)
	case *effects.Unanswered:
		if d.conn.completeOne() {
			l.closeConn(v, n)
		}
		l.pumpQueue(v, n)
	case *effects.ConnLost:
		l.closeConn(v, n)
	default:
		kernel.PanicUnexpected("the lookups in directories")
	}
}

// OnTimer handles the timeout of a question at its directory. If the question was sent, the connection is closed, and
// the directory is in backoff for a while.
func (l *Lookups) OnTimer(v *env.Env, ref kernel.Ref) {
	q := l.rows.Get(ref.Subject)
	q.timer = 0
	if q.sent {
		l.closeConn(v, q.queue)
		return
	}
	l.leaveQueue(v, ref.Subject)
	l.askNext(v, ref.Subject)
}

// closeConn closes the connection to a directory, so that no late reply can arrive. The questions there move to the
// next directory.
func (l *Lookups) closeConn(v *env.Env, n int) {
	l.queues[n].conn.closeConn(v, &l.pace)
	l.moveLookups(v, n)
}

// moveLookups moves all questions of a desk to the next desks, in this step. At most [Config.LookupsMax] (256 by
// default) are moved, and each examines every desk once.
func (l *Lookups) moveLookups(v *env.Env, n int) {
	d := &l.queues[n]
	for _, from := range [...]*table.List{&d.inFlight, &d.unsent} {
		for h := from.Front(); h != 0; h = from.Front() {
			l.leaveQueue(v, h)
			l.askNext(v, h)
		}
	}
}

// handleReply handles a reply. If the message is not a reply to a lookup, the connection is closed and the next
// directory is asked.
func (l *Lookups) handleReply(v *env.Env, n int, h table.Handle, body []byte) {
	m := &l.reply
	if m.Decode(body, &l.cfg.Wire) != nil {
		l.closeConn(v, n)
		return
	}
	l.queues[n].conn.failures = 0
	q := l.rows.Get(h)
	if q == nil { // The question was cancelled.
		return
	}
	holders := l.validHolders(q)
	if len(holders) > 0 && l.cfg.CacheTime > 0 {
		l.cache.addReply(v.Now.Add(l.cfg.CacheTime), q, holders)
	}
	l.finishLookup(v, h, effects.OK, holders)
}

// validHolders returns the valid holders of a reply: those with a usable address, excluding the worker's own instance,
// with hit counts limited to the number of requested chunks.
func (l *Lookups) validHolders(q *lookup) (all []Holder) {
	for i := range l.reply.Holders {
		x := &l.reply.Holders[i]
		at, err := protocol.ParseEndpoint(string(x.PeerInitURL))
		if err != nil || string(x.InstanceID) == l.cfg.Worker.Instance || len(all) == l.cfg.HoldersMax {
			continue
		}
		all = append(all, Holder{
			Instance: string(x.InstanceID), Location: string(x.Location), At: effects.Addr{Host: at.Host, Port: at.Port},
			Chunks: int(min(uint64(x.HitChunks), uint64(len(q.hashes)))),
		})
	}
	return all
}
