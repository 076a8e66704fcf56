package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Where is a receiver's address: host and ports, compared one by one.
type Where struct {
	Host      string
	InitPort  uint16
	AllocPort uint16
}

// State is how far an Outbound's handshake is.
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

// Outbound is the sender's side of a link.
type Outbound struct {
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

// Outbound is what the room knows of a peer and of attempts to reach it, to look at now: nobody keeps it.
func (l *Links) Outbound(h table.Handle) *Outbound { return l.peers.Get(h) }

// State returns the peer's state and, in Backoff, why it failed last.
func (p *Outbound) State() (State, effects.Code) { return p.state, p.cause }

// Absent says whether nobody listened where the last attempt to reach a peer went.
func (p *Outbound) Absent() bool { return p.absent }

// Attempt tells one try to reach a peer from the next: it is another number after each that failed.
func (p *Outbound) Attempt() uint64 { return p.epoch }

// Where is the peer's address.
func (p *Outbound) Where() Where { return p.where }

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
	*p = Outbound{
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

func (l *Links) change(h table.Handle, p *Outbound) {
	if !p.changed {
		p.changed = true
		l.changed = append(l.changed, h)
	}
}

func (l *Links) unchange(h table.Handle, p *Outbound) {
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
