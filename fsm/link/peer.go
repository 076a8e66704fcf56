package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Where is a receiver's address: host and ports, compared one by one.
type Where struct {
	Host      string
	InitPort  uint16
	AllocPort uint16
}

// State is how far a Peer's handshake is.
type State uint8

// States, in the order of a handshake.
const (
	Idle      State = iota // nobody wants it
	Opening                // waiting for the init connection
	Greeting               // hello sent
	Importing              // the data plane connects
	Listing                // asked for the buffers
	Ready                  // usable
	Backoff                // failed; waiting to try again
)

// Peer is the sender's side of a link.
type Peer struct {
	where   Where
	hash    uint64
	state   State
	epoch   uint64       `snap:"past"` // attempts, of all that had this slot; completions of a former one are stale
	wanted  uint32       // how many puts need it
	owed    uint32       // completions outstanding, those of former attempts included
	conn    Conn         // to its init port, while a handshake goes on
	row     table.Handle // of its Incarnation
	fails   uint32
	cause   effects.Code
	why     *effects.Why   // of cause
	timer   kernel.TimerID `snap:"set"`
	lanes   [Lanes]Conn
	changed bool
	absent  bool   // nobody listened at its last attempt
	met     bool   // it said hello, in some life, as our kind does
	alien   bool   // at its last attempt it was of another kind
	silent  uint32 // hellos in a row that nobody answered, of one who never did
}

// Kinds of this room's completions and deadlines.
const (
	kindOpenInit uint8 = iota + 1
	kindHello
	kindImport
	kindList
	kindReach
	kindOpenLane // + lane

	timerStage uint8 = 1 // when a handshake stage has taken too long
	timerRetry uint8 = 2 // when to try a failed peer again
)

// Peers is the number of peers in the table.
func (l *Links) Peers() int { return l.peers.Len() }

// State returns the peer's state and, in Backoff, why it failed last.
func (l *Links) State(h table.Handle) (State, effects.Code) {
	p := l.peers.Get(h)
	return p.state, p.cause
}

// Absent says whether nobody listened where the last attempt to reach a peer went.
func (l *Links) Absent(h table.Handle) bool { return l.peers.Get(h).absent }

// Attempt tells one try to reach a peer from the next: it is another number after each that failed.
func (l *Links) Attempt(h table.Handle) uint64 { return l.peers.Get(h).epoch }

// Link returns what a transfer to a Ready peer needs.
func (l *Links) Link(h table.Handle) (effects.Link, effects.Incarnation) {
	x := l.of(h)
	return x.link.id, x.who
}

// Us is what a peer knows us by.
func (l *Links) Us(h table.Handle) effects.Incarnation { return l.of(h).us }

// Where is the peer's address.
func (l *Links) Where(h table.Handle) Where { return l.peers.Get(h).where }

// Extended says whether the peer speaks our extensions, Commits whether it takes commits.
func (l *Links) Extended(h table.Handle) bool { return l.of(h).who != effects.Incarnation{} }

// Commits says whether the peer takes commits.
func (l *Links) Commits(h table.Handle) bool { return l.of(h).caps&protocol.CapCommit != 0 }

// Withdrawals says whether the peer takes withdrawals of offers, Leases whether it keeps to leases.
func (l *Links) Withdrawals(h table.Handle) bool { return l.of(h).caps&protocol.CapPull != 0 }

// Leases says whether the peer keeps to leases.
func (l *Links) Leases(h table.Handle) bool { return l.of(h).caps&protocol.CapLease != 0 }

// Stamps are those of a message to a peer now.
func (l *Links) Stamps(v *env.Env, h table.Handle) protocol.Stamps {
	return protocol.Stamps{ClockNS: int64(v.Now), EchoNS: l.of(h).echo}
}

// Seen notes the stamp of a message of the peer's present life.
func (l *Links) Seen(h table.Handle, s protocol.Stamps) {
	if s.ClockNS != 0 {
		l.of(h).echo = s.ClockNS
	}
}

// FirstBuffer is the one that a Ready peer listed first; zero if it listed none.
func (l *Links) FirstBuffer(h table.Handle) effects.BufferID {
	if b := l.of(h).buffers; len(b) > 0 {
		return b[0].ID
	}
	return effects.BufferID{}
}

// Buffer finds one of a Ready peer's buffers.
func (l *Links) Buffer(h table.Handle, id effects.BufferID) (effects.Buffer, bool) {
	for _, b := range l.of(h).buffers {
		if b.ID == id {
			return b, true
		}
	}
	return effects.Buffer{}, false
}

// Want finds or makes the peer for one more put and starts connecting if need be.
// It returns zero when the table is full of peers in use.
func (l *Links) Want(v *env.Env, where Where) table.Handle {
	hash := table.Hash(l.seed^uint64(where.InitPort)<<16^uint64(where.AllocPort), []byte(where.Host))
	for p := l.byAddr.Seek(hash); p.Found(); p = l.byAddr.Next(p) {
		if l.peers.Get(p.Handle()).where == where {
			l.want(v, p.Handle())
			return p.Handle()
		}
	}
	if l.peers.Full() && !l.evict(v) {
		return 0
	}
	h, p := l.peers.Add()
	*p = Peer{
		where: where, hash: hash, epoch: p.epoch + 1,
		row: l.enter(effects.Incarnation{}, l.cfg.Key.To(where.Host, where.InitPort, where.AllocPort), h),
	}
	l.byAddr.Add(hash, h)
	l.want(v, h)
	return h
}

func (l *Links) want(v *env.Env, h table.Handle) {
	p := l.peers.Get(h)
	p.wanted++
	if p.state == Idle {
		l.connect(v, h, p)
	}
}

// Unwant takes back one Want. The link stays up for the next one.
func (l *Links) Unwant(h table.Handle) { l.peers.Get(h).wanted-- }

// evict removes one peer that nobody wants.
func (l *Links) evict(v *env.Env) bool {
	for slot := range l.peers.Slots() {
		h := l.peers.At(slot)
		if h == 0 {
			continue
		}
		if p := l.peers.Get(h); p.wanted == 0 && !p.changed && l.orphans+p.owed <= l.cfg.PeersMax {
			l.orphans += p.owed
			v.Out.Mark(MarkPeerEvicted)
			l.Fail(v, h, effects.Closed, effects.Why{})
			v.Timers.Stop(&p.timer)
			l.unchange(h, p)
			l.byAddr.Remove(p.hash, h)
			row := p.row
			l.peers.Remove(h)
			l.exit(row)
			return true
		}
	}
	return false
}

// Owed is the most completions that a room for so many peers can be owed: of each peer those of leftoversMax
// stages of former attempts, of one more stage, and of a connection for each lane; and as many as there
// are peers of peers that had to go. A driver that lags is not asked for more.
func Owed(peersMax uint32) int {
	return int(peersMax) * (leftoversMax + 1 + int(Lanes) + 1)
}

const leftoversMax = 12

// connect starts a handshake, or puts it off while too many former attempts have not completed.
func (l *Links) connect(v *env.Env, h table.Handle, p *Peer) {
	if p.owed > leftoversMax {
		v.Out.Mark(MarkConnectPutOff)
		p.state = Backoff
		v.Timers.Set(&p.timer, v.Now.Add(l.backoff(max(p.fails, 1))), timerRef(timerRetry, h))
		return
	}
	p.state, p.absent, p.alien, l.rows.Get(p.row).link.tried = Opening, false, false, ""
	p.epoch++
	at := effects.Addr{Host: p.where.Host, Port: p.where.InitPort}
	p.conn.Open(v, l.corr(v, kindOpenInit, h, p), effects.ChannelInit, at)
	l.stage(v, h, p)
}

func (l *Links) stage(v *env.Env, h table.Handle, p *Peer) {
	v.Timers.Set(&p.timer, v.Now.Add(l.cfg.ReplyTimeout), timerRef(timerStage, h))
}

func (l *Links) corr(v *env.Env, kind uint8, h table.Handle, p *Peer) effects.Corr {
	p.owed++
	return v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Attempt: p.epoch, Subject: h})
}

// Fail ends the link, or the attempt at one: its connections and its data plane are closed, and it is made anew after a
// pause. What says more of the cause than its code.
func (l *Links) Fail(v *env.Env, h table.Handle, cause effects.Code, what effects.Why) {
	p := l.peers.Get(h)
	if p.state == Idle || p.state == Backoff {
		return
	}
	x := l.rows.Get(p.row)
	why := p.explain(x.who, &what)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkDown, Code: cause, Count: p.fails + 1, Peer: x.who, Why: why})
	p.epoch++
	p.conn.Close(v)
	for i := range p.lanes {
		l.CloseLane(v, h, Lane(i))
	}
	p.conn, p.lanes = Conn{}, [Lanes]Conn{} // an Opened still to come is of a former attempt
	l.drop(v, p.row)
	x.who, x.caps, x.echo = effects.Incarnation{}, 0, 0
	x.buffers, x.link.offers, x.link.planes = x.buffers[:0], x.link.offers[:0], x.link.planes[:0]
	p.cause, p.why = cause, why
	p.fails++
	p.state = Backoff
	v.Timers.Set(&p.timer, v.Now.Add(l.delay(p)), timerRef(timerRetry, h))
	l.change(h, p)
}

func (l *Links) change(h table.Handle, p *Peer) {
	if !p.changed {
		p.changed = true
		l.changed = append(l.changed, h)
	}
}

func (l *Links) unchange(h table.Handle, p *Peer) {
	if !p.changed {
		return
	}
	p.changed = false
	for i, c := range l.changed {
		if c == h {
			l.changed = append(l.changed[:i], l.changed[i+1:]...)
			return
		}
	}
}

// Changed takes one peer whose state or lanes changed since it was last taken.
func (l *Links) Changed() (table.Handle, bool) {
	if len(l.changed) == 0 {
		return 0, false
	}
	h := l.changed[0]
	l.changed = append(l.changed[:0], l.changed[1:]...)
	l.peers.Get(h).changed = false
	return h, true
}

// OnTimer handles this room's deadlines.
func (l *Links) OnTimer(v *env.Env, ref kernel.Ref) {
	p := l.peers.Get(ref.Subject)
	if p == nil {
		panic("BUG: a deadline outlived its peer")
	}
	p.timer = 0
	switch ref.Kind {
	case timerStage:
		v.Out.Mark(MarkHandshakeTimeout)
		if p.state == Greeting && !p.met {
			p.silent++
		}
		l.Fail(v, ref.Subject, effects.Expired, p.noAnswer(l.cfg.ReplyTimeout))
	case timerRetry:
		p.state = Idle
		if p.wanted > 0 {
			l.connect(v, ref.Subject, p)
		}
	}
}

// OnLinkLost handles the end of a data-plane link that we imported.
func (l *Links) OnLinkLost(v *env.Env, link effects.Link) {
	if h := l.ByLink(link); h != 0 {
		v.Out.Mark(MarkLinkLost)
		l.Fail(v, h, effects.PeerLost, effects.Why{Field: "data plane", Theirs: "gone"})
	}
}

// OnConnLost handles the end of a connection that we opened.
func (l *Links) OnConnLost(v *env.Env, conn effects.Conn) bool {
	for slot := range l.peers.Slots() {
		h := l.peers.At(slot)
		if h == 0 {
			continue
		}
		p := l.peers.Get(h)
		if p.conn.Is(conn) {
			l.Fail(v, h, effects.PeerLost, effects.Why{Field: "connection", Theirs: "gone"})
			return true
		}
		for i := range p.lanes {
			if p.lanes[i].Is(conn) {
				l.CloseLane(v, h, Lane(i))
				return true
			}
		}
	}
	return false
}
