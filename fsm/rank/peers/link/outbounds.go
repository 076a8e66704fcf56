package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// outbounds holds the peers that this node connects to.
type outbounds struct {
	seed               uint64
	peers              table.Slab[Outbound]
	byAddr             table.Index
	evictedCompletions uint32       // outstanding completions of evicted peers
	changed            changedPeers // peers to be returned by NextChanged
	pace               pace
	messages           clientMessages
}

func (o *outbounds) recycle(cfg *Config, seed uint64) outbounds {
	return outbounds{
		seed: seed, peers: o.peers.Recycle(int(cfg.PeersMax)), byAddr: o.byAddr.Recycle(),
		pace: pace{random: seed | 1, delayMin: cfg.BackoffMin, delayMax: cfg.BackoffMax, unfitDelay: cfg.UnfitBackoff},
	}
}

// outboundView bundles an outbound peer with the environment of the present step. It is valid for one call from outside
// and must not be stored, because its pointers lead into tables.
type outboundView struct {
	v    *env.Env
	cfg  *Config
	rows *incarnations
	out  *outbounds
	h    table.Handle
	p    *Outbound    // nil if the peer was evicted
	x    *Incarnation // the peer's incarnation
}

// viewOutbound returns an outbound peer with the environment of the present step.
func (l *Links) viewOutbound(v *env.Env, h table.Handle) outboundView {
	c := outboundView{v: v, cfg: &l.cfg, rows: &l.rows, out: &l.out, h: h, p: l.out.peers.Get(h)}
	if c.p != nil {
		c.x = l.rows.get(c.p.row)
	}
	return c
}

// markChanged lists the peer in changes, so that requests that wait for the peer are examined again.
func (c *outboundView) markChanged() { c.out.changed.addPeer(c.h, c.p) }

// openCorr opens a correlation for an effect of the present attempt, and counts the completion as outstanding.
func (c *outboundView) openCorr(kind uint8) effects.Corr {
	c.p.outstanding++
	return c.v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Attempt: c.p.epoch, Subject: c.h})
}

// CountOutbound returns the number of outbound peers in the table.
func (l *Links) CountOutbound() int { return l.out.peers.Len() }

// Outbound returns the state of an outbound peer. The result is valid during the current call and must not be stored.
func (l *Links) Outbound(h table.Handle) *Outbound { return l.out.peers.Get(h) }

// AcquirePeer returns the peer with an address for one more put. AcquirePeer inserts the peer if it is new and starts a
// handshake if the peer is Idle. AcquirePeer returns zero if the table is full of peers that are in use.
func (l *Links) AcquirePeer(v *env.Env, addr PeerAddr) table.Handle {
	o := &l.out
	hash := o.hashAddr(addr)
	h := o.findPeer(hash, addr)
	if h == 0 {
		if o.peers.Full() {
			spare := o.findEvictable(l.cfg.PeersMax)
			if spare == 0 {
				return 0
			}
			c := l.viewOutbound(v, spare)
			c.evictPeer()
		}
		var p *Outbound
		h, p = o.peers.Add()
		*p = Outbound{
			addr: addr, addrHash: hash, epoch: p.epoch + 1,
			row: l.rows.addRow(effects.Incarnation{}, l.cfg.Key.OutboundName(addr.Host, addr.InitPort, addr.AllocPort), h),
		}
		o.byAddr.Add(hash, h)
	}
	c := l.viewOutbound(v, h)
	c.p.users++
	if c.p.state == Idle {
		c.startHandshake()
	}
	return h
}

// HasRoomForPeers reports whether AcquirePeer would find room for each of n peers. A command that needs several peers is
// refused as a whole, so no handshake may begin, and no row of another peer be given away, for the first ones of them.
// addrOf returns the address of the i-th peer.
func (l *Links) HasRoomForPeers(n int, addrOf func(i int) PeerAddr) bool {
	o := &l.out
	isNamed := func(addr PeerAddr, n int) bool {
		for i := range n {
			if addrOf(i) == addr {
				return true
			}
		}
		return false
	}
	missing := 0
	for i := range n {
		if addr := addrOf(i); o.findPeer(o.hashAddr(addr), addr) == 0 && !isNamed(addr, i) {
			missing++
		}
	}
	room, completions := o.peers.Max()-o.peers.Len(), o.evictedCompletions
	for slot := range o.peers.Slots() {
		p := o.peers.Get(o.peers.At(slot))
		if room < missing && p != nil && o.mayEvict(p, completions, l.cfg.PeersMax) && !isNamed(p.addr, n) {
			room, completions = room+1, completions+p.outstanding
		}
	}
	return room >= missing
}

// HelloIDs returns the two names of the last completed hello between this node and the peer with an address, whether or
// not the link is still up. The names are zero if there was no such hello or if the peer was evicted.
func (l *Links) HelloIDs(addr PeerAddr) (self, peer effects.Incarnation) {
	h := l.out.findPeer(l.out.hashAddr(addr), addr)
	if h == 0 {
		return self, peer
	}
	if x := l.IncarnationOf(h); x.formerPeerID != (effects.Incarnation{}) {
		self, peer = x.selfID, x.formerPeerID
	}
	return self, peer
}

// ReleasePeer takes back one AcquirePeer. The link stays up for the next put.
func (l *Links) ReleasePeer(h table.Handle) { l.out.peers.Get(h).users-- }

func (o *outbounds) hashAddr(addr PeerAddr) uint64 {
	return table.Hash(o.seed^uint64(addr.InitPort)<<16^uint64(addr.AllocPort), []byte(addr.Host))
}

// findPeer returns the outbound peer with an address, or zero. The hash is that of the address.
func (o *outbounds) findPeer(hash uint64, addr PeerAddr) table.Handle {
	for p := o.byAddr.Find(hash); p.Found(); p = o.byAddr.Next(p) {
		if o.peers.Get(p.Handle()).addr == addr {
			return p.Handle()
		}
	}
	return 0
}

// findEvictable returns a peer that no put wants and that can be evicted, or zero. The number of outstanding
// completions of evicted peers stays bounded by evictedMax.
func (o *outbounds) findEvictable(evictedMax uint32) table.Handle {
	for slot := range o.peers.Slots() {
		h := o.peers.At(slot)
		if p := o.peers.Get(h); p != nil && o.mayEvict(p, o.evictedCompletions, evictedMax) {
			return h
		}
	}
	return 0
}

// mayEvict reports whether a peer may be evicted when so many completions of evicted peers are outstanding.
func (*outbounds) mayEvict(p *Outbound, evictedCompletions, evictedMax uint32) bool {
	return p.users == 0 && !p.changed && evictedCompletions+p.outstanding <= evictedMax
}

// evictPeer removes the peer from the table and ends its link.
func (c *outboundView) evictPeer() {
	o, p := c.out, c.p
	o.evictedCompletions += p.outstanding
	c.v.Out.Mark(Marks.PeerEvicted)
	c.failPeer(effects.Closed, effects.Why{})
	c.v.Timers.Stop(&p.timer)
	o.changed.removePeer(c.h, p)
	o.byAddr.Remove(p.addrHash, c.h)
	row := p.row
	o.peers.Remove(c.h)
	c.rows.removeRow(row)
}

// MarkChanged lists a peer in changes, so that requests that wait for the peer are examined again in this step or in
// the next. A caller uses MarkChanged when it stopped before it had examined all of them.
func (l *Links) MarkChanged(h table.Handle) { l.out.changed.addPeer(h, l.out.peers.Get(h)) }

// NextChanged removes and returns one peer whose state or lanes have changed. It reports false if there is none.
func (l *Links) NextChanged() (table.Handle, bool) {
	h := l.out.changed.popPeer()
	if h == 0 {
		return 0, false
	}
	l.out.peers.Get(h).changed = false
	return h, true
}
