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
