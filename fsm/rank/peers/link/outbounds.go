package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// outbounds are the peers that we call.
type outbounds struct {
	seed    uint64
	peers   table.Slab[Outbound]
	byAddr  table.Index
	orphans uint32  // completions outstanding of peers that had to go
	changed changes // drained by Changed
	pace    pace
	hello   helloOut
}

func (o *outbounds) emptied(cfg *Config, seed uint64) outbounds {
	return outbounds{
		seed: seed, peers: o.peers.Emptied(int(cfg.PeersMax)), byAddr: o.byAddr.Emptied(),
		pace: pace{random: seed | 1, min: cfg.BackoffMin, most: cfg.BackoffMax, unfit: cfg.UnfitBackoff},
	}
}

// A calling is one peer that we call, for the time of one call from outside: nobody keeps it, because its pointers
// lead into tables.
type calling struct {
	v    *env.Env
	cfg  *Config
	rows *incarnations
	out  *outbounds
	h    table.Handle
	p    *Outbound    // nil: it had to go
	x    *Incarnation // its own
}

func (l *Links) calling(v *env.Env, h table.Handle) calling {
	c := calling{v: v, cfg: &l.cfg, rows: &l.rows, out: &l.out, h: h, p: l.out.peers.Get(h)}
	if c.p != nil {
		c.x = l.rows.get(c.p.row)
	}
	return c
}

// change has those who wait for the peer look again.
func (c *calling) change() { c.out.changed.add(c.h, c.p) }

func (c *calling) corr(kind uint8) effects.Corr {
	c.p.owed++
	return c.v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Attempt: c.p.epoch, Subject: c.h})
}

// Peers is the number of peers that we call in the table.
func (l *Links) Peers() int { return l.out.peers.Len() }

// Outbound is what the room knows of a peer and of attempts to reach it, to look at now: nobody keeps it.
func (l *Links) Outbound(h table.Handle) *Outbound { return l.out.peers.Get(h) }

// Want finds or makes the peer for one more put and starts connecting if need be.
// It returns zero when the table is full of peers in use.
func (l *Links) Want(v *env.Env, where Where) table.Handle {
	o := &l.out
	hash := o.hash(where)
	h := o.find(hash, where)
	if h == 0 {
		if o.peers.Full() {
			spare := o.spare(l.cfg.PeersMax)
			if spare == 0 {
				return 0
			}
			c := l.calling(v, spare)
			c.evict()
		}
		var p *Outbound
		h, p = o.peers.Add()
		*p = Outbound{
			where: where, hash: hash, epoch: p.epoch + 1,
			row: l.rows.enter(effects.Incarnation{}, l.cfg.Key.To(where.Host, where.InitPort, where.AllocPort), h),
		}
		o.byAddr.Add(hash, h)
	}
	c := l.calling(v, h)
	c.p.wanted++
	if c.p.state == Idle {
		c.connect()
	}
	return h
}

// Names are the two by which a peer that we call and we knew each other when hands were shaken last, be the link up or
// not; zero: they never were, or are forgotten.
func (l *Links) Names(where Where) (us, who effects.Incarnation) {
	h := l.out.find(l.out.hash(where), where)
	if h == 0 {
		return us, who
	}
	if x := l.Of(h); x.former != (effects.Incarnation{}) {
		us, who = x.us, x.former
	}
	return us, who
}

// Unwant takes back one Want. The link stays up for the next one.
func (l *Links) Unwant(h table.Handle) { l.out.peers.Get(h).wanted-- }

func (o *outbounds) hash(where Where) uint64 {
	return table.Hash(o.seed^uint64(where.InitPort)<<16^uint64(where.AllocPort), []byte(where.Host))
}

func (o *outbounds) find(hash uint64, where Where) table.Handle {
	for p := o.byAddr.Seek(hash); p.Found(); p = o.byAddr.Next(p) {
		if o.peers.Get(p.Handle()).where == where {
			return p.Handle()
		}
	}
	return 0
}

// spare is a peer that nobody wants, or zero. What drivers owe of those that go is bounded.
func (o *outbounds) spare(orphansMax uint32) table.Handle {
	for slot := range o.peers.Slots() {
		h := o.peers.At(slot)
		if p := o.peers.Get(h); p != nil && p.wanted == 0 && !p.changed && o.orphans+p.owed <= orphansMax {
			return h
		}
	}
	return 0
}

// evict removes the peer.
func (c *calling) evict() {
	o, p := c.out, c.p
	o.orphans += p.owed
	c.v.Out.Mark(Marks.PeerEvicted)
	c.fail(effects.Closed, effects.Why{})
	c.v.Timers.Stop(&p.timer)
	o.changed.forget(c.h, p)
	o.byAddr.Remove(p.hash, c.h)
	row := p.row
	o.peers.Remove(c.h)
	c.rows.exit(row)
}

// Stir has those who wait for a peer look again, in this step or the next: one has left them without having looked at
// all of what waits.
func (l *Links) Stir(h table.Handle) { l.out.changed.add(h, l.out.peers.Get(h)) }

// Changed takes one peer whose state or lanes changed since it was last taken.
func (l *Links) Changed() (table.Handle, bool) {
	h := l.out.changed.first()
	if h == 0 {
		return 0, false
	}
	l.out.peers.Get(h).changed = false
	return h, true
}
