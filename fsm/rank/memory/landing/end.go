package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file ends grants to store into this rank's pages. The pages are used again only after the writer is proven
// quiet. The proof is one of the following: the data plane has confirmed the revocation (OnRevoked); the writer has
// said so on a leased plane, where the driver cannot observe the writer (a commit or an abort); or, for a vanilla
// sender, the time of the grant is over (rules M4 and M5).

// RevokeGrant revokes a grant. The pages of the grant are in quarantine until the driver has proven that nothing can
// touch them; then OnRevoked is called.
//
// While the pages are compared with their checksums, the writer is quiet already and the driver reads the pages: then
// the grant ends when the comparison does (endQuietGrant).
func (l *Landings) RevokeGrant(v *env.Env, x *Landing) {
	l.QuarantinePages(v, x)
	if !x.Verifying {
		v.Out.Revoke(x.ID)
	}
}

// QuarantinePages puts the pages of a landing into quarantine (M1): nobody may use them until everything that may still
// store into these pages is known to be over. QuarantinePages asks the driver for nothing; RevokeGrant does.
func (l *Landings) QuarantinePages(v *env.Env, x *Landing) {
	v.Timers.Stop(&x.timer)
	x.Revoking = true
	v.Pools.QuarantineGrant(x.ID)
}

// OnRevoked handles the proof that nothing can touch the pages of a revoked grant any more: it ends the quarantine.
// OnRevoked ignores a grant that is unknown, that is not being revoked, or that is this rank's own.
func (l *Landings) OnRevoked(v *env.Env, s *store.Store, id effects.GrantID) {
	if x := l.Find(id); x != nil && x.Revoking && !x.IsOwnRead() {
		l.EndGrant(v, s, x)
	}
}

// ExpireGrant handles the deadline of a writer's grant. The grant is revoked. A grant of a vanilla sender ends at once,
// because nothing will ever report more about that sender. The time of the grant includes the stated residual (rule
// M5).
func (l *Landings) ExpireGrant(v *env.Env, s *store.Store, x *Landing) {
	if x.Peer == (effects.Incarnation{}) {
		l.EndGrant(v, s, x)
		return
	}
	l.RevokeGrant(v, x)
}

// CondemnClass handles the loss of the peer that has this class. On a fenced plane the peer cannot push any more, so
// the peer's grants are condemned, and a sweep revokes them later (RevokeCondemned). On a leased plane CondemnClass
// does nothing, because there only time and proof end a grant (rule M4).
//
// Until the sweep reaches a condemned grant, the grant stays in force. That is safe: the pages belong to nobody else
// until the plane has proven the end, and a page that lands under the grant is whole.
func (l *Landings) CondemnClass(class int) {
	if !l.cfg.Leased {
		l.losses.CondemnRows(class)
		l.Bundles.CondemnClass(class)
	}
}

// RevokeCondemned revokes a grant that CondemnClass has condemned, unless the grant is being revoked already.
func (l *Landings) RevokeCondemned(v *env.Env, x *Landing) {
	if !x.Revoking && !x.IsOwnRead() && l.losses.IsCondemned(x.Class, x.lossCount) {
		v.Out.Mark(Marks.WriterLost)
		v.Work.SpendRows(x.PageCount())
		l.RevokeGrant(v, x)
	}
}

// EndGrant removes a grant after the writer is quiet. The fills of pages that never landed are lost.
func (l *Landings) EndGrant(v *env.Env, s *store.Store, x *Landing) {
	v.Timers.Stop(&x.timer)
	l.reclaimPages(v, s, x)
	l.reportTraced(v, x)
	v.Pools.EndGrant(x.ID)
	if x.Operation != 0 {
		l.byOperation.Remove(table.Hash(x.Operation, x.Peer[:]), slotHandle(x.ID))
	}
	x.fills, x.Reply = table.TrimSlice(x.fills), table.TrimBytes(x.Reply)
	x.live = false
}

// reportTraced tells that a grant ended, if its request carries a trace.
func (l *Landings) reportTraced(v *env.Env, x *Landing) {
	if x.Trace == (effects.TraceContext{}) {
		return
	}
	code := effects.OK
	if x.pagesLost {
		code = effects.Withdrawn
	}
	report := effects.Report{Began: x.ArrivedAt, Bytes: x.bytes, Trace: effects.Trace{Context: x.Trace}}
	report.Phases[effects.PhaseQueue] = x.grantedAt.Sub(x.ArrivedAt)
	report.Phases[effects.PhaseWire] = v.Now.Sub(x.grantedAt)
	v.Out.Observe(effects.Observe{
		Fact: effects.FactGrantTraced, Code: code, Count: uint32(x.PageCount()), ID: uint64(x.ID), Peer: x.Peer,
		Report: v.Out.CopyReport(report),
	})
}

// reclaimPages takes the pages back that did not land under a grant. The writer must be quiet.
func (l *Landings) reclaimPages(v *env.Env, s *store.Store, x *Landing) {
	if x.ForLayers {
		l.reclaimLayers(v, s, x)
	}
	for position, h := range x.fills {
		if !x.ForLayers && v.Pools.IsPageOpen(x.ID, position) {
			hash := s.HashOf(h)
			s.EndFill(h, effects.Page{}, false)
			s.DropUnused(h, v)
			v.Out.Observe(effects.Observe{Fact: effects.FactFillLost, Code: effects.Withdrawn, ID: hash, Peer: x.Peer})
			s.RecordLostSource(hash)
		}
	}
	if freed := v.Pools.ReclaimOpenPages(x.ID); freed > 0 {
		x.pagesLost = true
		v.Out.Observe(effects.Observe{Fact: effects.FactReclaimed, Count: freed, ID: uint64(x.ID), Peer: x.Peer})
	}
}

// FindCommitted returns the landing that a peer commits, if the commit is to be believed: the writer says that all
// writes are settled and the pages are whole. Otherwise the landing is nil. repeated reports that the same commit was
// accepted before, so that the reply must be the same (M6). A commit of a grant that has ended, is being revoked, or is
// past CommitBy is refused, because the pages may belong to another grant by now. On a fenced plane every commit is
// refused, because there the driver reports what has landed.
func (l *Landings) FindCommitted(v *env.Env, peer effects.Incarnation, id effects.GrantID) (x *Landing, repeated bool) {
	x = l.Find(id)
	if x == nil {
		repeated = l.commitRecords.Find(peer, uint64(id), 0) != nil
		if repeated {
			v.Out.Mark(Marks.CommitRepeated)
		}
		return nil, repeated
	}
	if x.Peer != peer || x.IsOwnRead() {
		return nil, false // Only this rank itself knows when a read of this rank is whole.
	}
	if x.Revoking || !l.cfg.Leased || v.Now > x.CommitBy && !x.Verifying {
		v.Out.Mark(Marks.CommitLate)
		return nil, false
	}
	return x, false
}

// CommitGrant lands the pages of a landing that FindCommitted has returned, and ends the landing. CommitGrant reports
// whether every page was taken. Layers of a bundle that has ended are not taken, and then the commit is not recorded
// for retries.
func (l *Landings) CommitGrant(v *env.Env, s *store.Store, x *Landing, claim bool) (landedAll bool) {
	if landedAll = l.LandAll(v, s, x, claim); landedAll {
		l.RecordCommit(v, x.Class, x.Peer, x.ID)
	}
	l.EndGrant(v, s, x)
	return landedAll
}

// RecordCommit records a commit that was accepted, so that the same commit is answered in the same way again (M6).
func (l *Landings) RecordCommit(v *env.Env, class int, peer effects.Incarnation, id effects.GrantID) {
	l.commitRecords.Add(replies.Record{
		Class: class, Peer: peer, Operation: uint64(id), AllAttempts: true, SentAt: v.Now, Expires: v.Now.Add(l.cfg.ClaimTTL),
	})
}

// AbortGrant handles a peer's message that the peer will not write under a grant any more. AbortGrant ignores a grant
// that is unknown, that belongs to another peer, or that is this rank's own.
func (l *Landings) AbortGrant(v *env.Env, s *store.Store, peer effects.Incarnation, id effects.GrantID) {
	x := l.Find(id)
	if x == nil || x.Peer != peer || x.IsOwnRead() {
		return
	}
	v.Out.Mark(Marks.GrantAborted)
	l.OnWriterQuiet(v, s, x)
}

// OnWriterQuiet handles a writer's word that the writer stores nothing under a grant any more. Pages that have not
// landed are lost. On a fenced plane the grant is revoked, unless this is in progress. On a leased plane the writer's
// word is the proof.
func (l *Landings) OnWriterQuiet(v *env.Env, s *store.Store, x *Landing) {
	v.Work.SpendRows(x.PageCount())
	switch {
	case x.Verifying:
		// The pages stay with the grant until the driver has compared them, and are then dropped.
		if !x.Revoking {
			l.RevokeGrant(v, x)
		}
	case l.cfg.Leased && !x.Revoking:
		// The writer's word that the writes are settled is the proof, also in quarantine.
		l.EndGrant(v, s, x)
	case l.cfg.Leased:
		// The driver still works on the revocation, so the grant stays, without pages, until OnRevoked. Otherwise a
		// peer that lets grants expire and then aborts them would cause more revocations in flight than the driver was
		// told to expect.
		l.reclaimPages(v, s, x)
	case !x.Revoking:
		l.RevokeGrant(v, x)
	}
}

// CountCommitRecords returns the number of remembered commits. Use it for inspection only.
func (l *Landings) CountCommitRecords() int { return l.commitRecords.Len() }

// OnClassReassigned drops the replay records of a class that is assigned to another peer from now on.
func (l *Landings) OnClassReassigned(class int) {
	l.commitRecords.DropClass(class)
	l.carriedRecords.DropClass(class)
}
