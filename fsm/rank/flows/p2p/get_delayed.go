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

// keepLoan keeps a loan, or ends the get if that is not possible. The right to read counts from before the request
// (M4), and ends LeaseGuard before the loan does. A fetch of a chunk after the right has ended is a miss.
func (f *Requester) keepLoan(e *flow.Env, h table.Handle, r *getRow) {
	m := &f.reply
	stated := e.StatedLease(uint64(m.LeaseNS()))
	r.readUntil = e.AccessEnd(r.sentAt, stated)
	f.keys = f.keys[:0]
	for i := range m.HitChunks {
		f.keys = append(f.keys, r.keyAt(int(r.presentCount+i)))
	}
	if e.Now.Add(f.cfg.LeadMin) > r.readUntil {
		e.Out.Mark(Marks.KeptTooLate)
		r.setReason(effects.Expired, *flow.TooLateReason())
		f.finishGet(e, h, r, effects.Expired)
		return
	}
	if !e.Deferred.HasRoom(&e.Store, ownClass, len(f.keys)) {
		e.Out.Mark(Marks.KeptFull)
		r.setReason(effects.TooMany, effects.Why{Field: "chunks that peers keep for this node",
			Ours:   "at the limit (" + e.Pool.ConfigKey() + ")",
			Remedy: "fetch sooner, or enlarge " + e.Pool.ConfigKey()})
		f.finishGet(e, h, r, effects.TooMany)
		return
	}
	p := e.Landings.PlanKeys(&e.Env, &e.Store, ownClass, f.keys, m.Ext.Sums, e.Cfg.Layout.TokenCount(), true)
	p.EndFills(&e.Env, &e.Store) // PlanKeys began fills, but nothing is read now.
	if p.PagesNeeded() == 0 {
		e.Out.Mark(Marks.CameElsewhere)
		f.finishGet(e, h, r, f.completionCode(r))
		return
	}
	currentLink, _ := e.Links.IncarnationOf(r.peer).Link()
	at := protocol.Endpoint{Host: r.peerAddr.Host, Port: r.peerAddr.InitPort}
	keptLoan := e.Deferred.AddOffer(deferred.Offer{
		Class: ownClass, Peer: r.peerID, SelfID: r.selfID, Operation: r.operation, Grant: r.readGrant, Request: r.requestHash,
		Right:  lease.Right{Since: r.firstSentAt, Until: r.readUntil, ExpiresAt: r.sentAt.Add(stated)},
		Origin: deferred.Origin{Peer: r.peer, Name: at.String(), Link: currentLink, Requester: h},
	}, nil)
	for i := range p.Keys {
		if at := &p.Keys[i]; at.NeedsPage() {
			e.Deferred.AddChunk(&e.Store, keptLoan, p.Hashes[i], f.keys[i], p.Lengths[at.Page], effects.RemotePage{
				Buffer: effects.BufferID(m.RemoteUUIDs[i]), Index: uint32(m.RemoteIndexes[i]),
				Sum: effects.SumAt(m.Ext.Sums, i), Generation: effects.Generation(m.Ext.Generations[i]),
			})
		}
	}
	e.Deferred.SetDeadline(&e.Env, keptLoan, false)
	r.phase, r.keptLoan = getLoanKept, keptLoan
	f.gets.PushBack(&f.queueOf(r).keptLoans, h)
	f.deliverOutcome(e, r, f.completionCode(r))
}

// dropKeptLoans gives up the kept loans of a peer, if the link is not the one over which they were requested.
func (f *Requester) dropKeptLoans(e *flow.Env, peer table.Handle) {
	currentLink, _ := e.Links.IncarnationOf(peer).Link()
	for h := f.peerQueues[peer.Slot()].keptLoans.Front(); h != 0; h = f.gets.Next(h) {
		e.Work.SpendLook()
		if e.Deferred.CondemnRequested(f.gets.Get(h).keptLoan, currentLink, effects.PeerLost) {
			e.Out.Mark(Marks.KeptLost)
		}
	}
}

// ReturnKeptLoans sends done messages for kept loans that are over: every chunk was fetched, has expired or is not
// wanted, and no transfer of this node reads under the loan.
func (f *Requester) ReturnKeptLoans(e *flow.Env) {
	for _, x := range e.Deferred.EndedPrefixes() {
		r := f.gets.Get(x.Requester)
		f.gets.Unlink(&f.queueOf(r).keptLoans, x.Requester)
		r.keptLoan = 0
		f.queueDone(e, x.Requester, r)
	}
	e.Deferred.ClearEndedPrefixes()
}

// countPrefix returns how many of the chunks, from the first on, are ready here or, in delayed mode, kept for the
// request.
func countPrefix(e *flow.Env, mode Mode, request uint64, keys [][]byte) (n uint32) {
	if mode != Delayed {
		return e.CountReadable(keys)
	}
	for _, key := range keys {
		chunk := e.Store.Find(e.Store.HashKey(key), key)
		if _, ready := e.Store.ReadyPage(chunk); !ready && !e.Deferred.HasChunkFor(&e.Env, &e.Store, chunk, request) {
			break
		}
		n++
	}
	return n
}
