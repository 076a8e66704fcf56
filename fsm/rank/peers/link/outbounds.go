package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// outbounds holds the peers that this node connects to.
type outbounds struct {
	seed    uint64
	peers   table.Slab[Outbound]
	byAddr  table.Index
	orphans uint32  // outstanding completions of evicted peers
	changed changes // peers to be returned by Changed
	pace    pace
	hello   helloOut
}

func (o *outbounds) emptied(cfg *Config, seed uint64) outbounds {
	return outbounds{
		seed: seed, peers: o.peers.Emptied(int(cfg.PeersMax)), byAddr: o.byAddr.Emptied(),
		pace: pace{random: seed | 1, min: cfg.BackoffMin, most: cfg.BackoffMax, unfit: cfg.UnfitBackoff},
	}
}

// calling bundles an outbound peer with the environment of the present step. It is valid for one call from outside and
// must not be stored, because its pointers lead into tables.
type calling struct {
	v    *env.Env
	cfg  *Config
	rows *incarnations
	out  *outbounds
	h    table.Handle
	p    *Outbound    // nil if the peer was evicted
	x    *Incarnation // the peer's incarnation
}

// calling returns an outbound peer with the environment of the present step.
func (l *Links) calling(v *env.Env, h table.Handle) calling {
	c := calling{v: v, cfg: &l.cfg, rows: &l.rows, out: &l.out, h: h, p: l.out.peers.Get(h)}
	if c.p != nil {
		c.x = l.rows.get(c.p.row)
	}
	return c
}

// change lists the peer in changes, so that requests that wait for the peer are examined again.
func (c *calling) change() { c.out.changed.add(c.h, c.p) }

// corr opens a correlation for an effect of the present attempt, and counts the completion as outstanding.
func (c *calling) corr(kind uint8) effects.Corr {
	c.p.owed++
	return c.v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Attempt: c.p.epoch, Subject: c.h})
}

// Peers returns the number of outbound peers in the table.
func (l *Links) Peers() int { return l.out.peers.Len() }

// Outbound returns the state of an outbound peer. The result is valid during the current call and must not be stored.
func (l *Links) Outbound(h table.Handle) *Outbound { return l.out.peers.Get(h) }

// Want returns the peer with an address for one more put. Want inserts the peer if it is new and starts a handshake if
// the peer is Idle. Want returns zero if the table is full of peers that are in use.
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

// Names returns the two names of the last completed hello between this node and the peer with an address, whether or
// not the link is still up. The names are zero if there was no such hello or if the peer was evicted.
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

// Unwant takes back one Want. The link stays up for the next put.
func (l *Links) Unwant(h table.Handle) { l.out.peers.Get(h).wanted-- }

func (o *outbounds) hash(where Where) uint64 {
	return table.Hash(o.seed^uint64(where.InitPort)<<16^uint64(where.AllocPort), []byte(where.Host))
}

// find returns the outbound peer with an address, or zero. The hash is that of the address.
func (o *outbounds) find(hash uint64, where Where) table.Handle {
	for p := o.byAddr.Seek(hash); p.Found(); p = o.byAddr.Next(p) {
		if o.peers.Get(p.Handle()).where == where {
			return p.Handle()
		}
	}
	return 0
}

// spare returns a peer that no put wants and that can be evicted, or zero. The number of outstanding completions of
// evicted peers stays bounded by orphansMax.
func (o *outbounds) spare(orphansMax uint32) table.Handle {
	for slot := range o.peers.Slots() {
		h := o.peers.At(slot)
		if p := o.peers.Get(h); p != nil && p.wanted == 0 && !p.changed && o.orphans+p.owed <= orphansMax {
			return h
		}
	}
	return 0
}

// evict removes the peer from the table and ends its link.
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

// Stir lists a peer in changes, so that requests that wait for the peer are examined again in this step or in the next.
// A caller uses Stir when it stopped before it had examined all of them.
func (l *Links) Stir(h table.Handle) { l.out.changed.add(h, l.out.peers.Get(h)) }

// Changed removes and returns one peer whose state or lanes have changed. It reports false if there is none.
func (l *Links) Changed() (table.Handle, bool) {
	h := l.out.changed.first()
	if h == 0 {
		return 0, false
	}
	l.out.peers.Get(h).changed = false
	return h, true
}
