package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Delayed mode: the loan is kept like a deferred offer, in the room for these (package deferred). That room reads the
// chunks, and reports when nothing of the loan is left that may be read. Then the owner is notified.

// keepLent keeps a loan, or ends the get if that is not possible. The right to read counts from before the request
// (M4), and ends LeaseGuard before the loan does. A fetch of a chunk after the right has ended is a miss.
func (f *Requester) keepLent(e *flow.Env, h table.Handle, r *get) {
	m := &f.reply
	ends := r.asked.Add(e.Stated(uint64(m.LeaseNS())))
	r.until = ends.Add(-e.Cfg.LeaseGuard)
	f.keys = f.keys[:0]
	for i := range m.HitChunks {
		f.keys = append(f.keys, r.key(int(r.here+i)))
	}
	if e.Now.Add(f.cfg.LeadMin) > r.until {
		e.Out.Mark(Marks.KeptTooLate)
		r.blame(effects.Expired, *flow.TooLate())
		f.finish(e, h, r, effects.Expired)
		return
	}
	if !e.Deferred.MayKeep(&e.Store, own, len(f.keys)) {
		e.Out.Mark(Marks.KeptFull)
		r.blame(effects.TooMany, effects.Why{Field: "chunks that peers keep for this node",
			Ours:   "as many as may be at a time (" + e.Pool.Key() + ")",
			Remedy: "fetch sooner, or enlarge " + e.Pool.Key()})
		f.finish(e, h, r, effects.TooMany)
		return
	}
	p := e.Landings.Plan(&e.Store, own, f.keys, e.Cfg.Layout.Tokens(), true)
	p.Unplan(&e.Env, &e.Store) // Plan began fills, but nothing is read now.
	if p.Fresh() == 0 {
		e.Out.Mark(Marks.CameElsewhere)
		f.finish(e, h, r, f.whole(r))
		return
	}
	over, _ := e.Links.Of(r.peer).Link()
	at := protocol.Endpoint{Host: r.where.Host, Port: r.where.InitPort}
	kept := e.Deferred.Keep(deferred.Kept{
		Class: own, Peer: r.who, Us: r.us, Operation: r.operation, Grant: r.grant, Request: r.request,
		Right: lease.Right{Since: r.since, Until: r.until, Over: ends},
		Asked: deferred.Asked{Of: r.peer, Name: at.String(), Over: over, By: h},
	}, nil)
	for i := range p.Spots {
		if at := &p.Spots[i]; at.Fills() {
			e.Deferred.Add(&e.Store, kept, p.Hashes[i], f.keys[i], p.Lengths[at.Page], effects.RemotePage{
				Buffer: effects.BufferID(m.RemoteUUIDs[i]), Index: uint32(m.RemoteIndexes[i]),
				Generation: effects.Generation(m.Ext.Generations[i]),
			})
		}
	}
	e.Deferred.Watch(&e.Env, kept, false)
	r.phase, r.kept = keeping, kept
	f.gets.PushBack(&f.line(r).kept, h)
	f.deliver(e, r, f.whole(r))
}

// loseKept gives up the kept loans of a peer, if the link is not the one over which they were requested.
func (f *Requester) loseKept(e *flow.Env, peer table.Handle) {
	over, _ := e.Links.Of(peer).Link()
	for h := f.lines[peer.Slot()].kept.Front(); h != 0; h = f.gets.Next(h) {
		e.Work.Look()
		if e.Deferred.LoseAsked(f.gets.Get(h).kept, over, effects.PeerLost) {
			e.Out.Mark(Marks.KeptLost)
		}
	}
}

// ReturnKept sends done messages for kept loans that are over: every chunk was fetched, has expired or is not wanted,
// and no transfer of this node reads under the loan.
func (f *Requester) ReturnKept(e *flow.Env) {
	for _, x := range e.Deferred.Returned() {
		r := f.gets.Get(x.By)
		f.gets.Unlink(&f.line(r).kept, x.By)
		r.kept = 0
		f.giveBack(e, x.By, r)
	}
	e.Deferred.HeardReturned()
}

// prefix returns how many of the chunks, from the first on, are ready here or, in delayed mode, kept for the request.
func prefix(e *flow.Env, mode Mode, request uint64, keys [][]byte) (n uint32) {
	if mode != Delayed {
		return e.Readable(keys)
	}
	for _, key := range keys {
		at := e.Store.Find(e.Store.Hash(key), key)
		if _, ready := e.Store.Ready(at); !ready && !e.Deferred.KeepsFor(&e.Env, &e.Store, at, request) {
			break
		}
		n++
	}
	return n
}
