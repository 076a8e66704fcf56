package put

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Row is the part of a put that both flows have: the command and its chunks, the peer for which they are, and the
// request about them that is in flight. The outcome of a put and its end are two events: after Deliver the Row stays
// until nothing touches the put's pages and the peer has been notified of all that it has to know.
type Row struct {
	engine.Op
	Batch
	Peer        table.Handle  // in the table of peers; zero: that table was full
	PeerAddr    link.PeerAddr // the peer's address
	Request     table.Handle  // zero: the put belongs to no request
	Operation   uint64
	Attempt     uint32         // how often the put was sent
	Failures    uint32         // sent attempts that count as failed
	finished    bool           // counted in the queue's over
	backedOff   bool           // in the queue alone
	sendOrder   uint64         `snap:"skip"` // order in which puts were first sent
	linkAttempt uint64         // the link's attempt when the put was queued
	Conn        effects.Conn   // of the lane that the put has taken
	replyTimer  kernel.TimerID `snap:"set"` // when the reply is overdue
	// PeerID is the incarnation of the peer that received the request. What that incarnation said about the put does
	// not hold for another incarnation (M2).
	PeerID effects.Incarnation
	SelfID effects.Incarnation // our identity towards the peer
	// chunks is the number of chunks for which the put needs room: a circuit breaker lets a put pass that is smaller
	// than the put that opened the breaker. If chunks is 0, no breaker stops the put, and the put opens none. That is
	// so for a put of another flow, which never waits at the peer, and which that flow retries.
	chunks uint32
	// AcceptsFinal means that the peer accepts a final message (a commit or a withdrawal). The link may be down by
	// then.
	AcceptsFinal bool
	Grant        effects.GrantID // of the peer, for the put's pages
	Sent         uint32
	Skipped      uint32
	times        phaseClock    `snap:"skip"`
	Trace        effects.Trace `snap:"skip"`
	CarriedInfo
}

// A CarriedInfo contains the additional properties of a put that another flow requested. A put of the engine has none
// of these.
type CarriedInfo struct {
	Requester kernel.Ref // the row to notify of the result; none: the engine
	// Layers is the number of layers of a chunk, each of which has a page; 0: each chunk has one page.
	Layers uint32
	// WholeChunks means that the keys name chunks, all layers of which are here, in order. Otherwise the keys name
	// layers.
	WholeChunks  bool
	Epoch        uint32
	OpeningGrant effects.GrantID
	PresentPages []uint32 // indices of pages; the peer had their chunks already
	// NoRoom means that the peer has no room for the put now, or that a circuit breaker is open for this reason. None
	// of the put was sent.
	NoRoom bool
}

// A Batch contains the keys of a put's chunks.
type Batch struct {
	keys       []byte
	keyEnds    []uint32 // keyEnds[i] is where key i ends in keys
	LastTokens uint32   // tokens in the last chunk
}

// Size returns the number of chunks.
func (b *Batch) Size() int { return len(b.keyEnds) }

// KeyBytes returns the length of all keys together.
func (b *Batch) KeyBytes() int { return len(b.keys) }

// Key returns the key of chunk i.
func (b *Batch) Key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = b.keyEnds[i-1]
	}
	return b.keys[from:b.keyEnds[i]]
}

// Tenant returns the tenant of the chunks, which is the same for all keys of a command.
func (b *Batch) Tenant() effects.Tenant { return effects.Tenant(protocol.TenantOf(b.Key(0))) }

// CountKeys returns the number of keys that describe the put: one for each chunk or, if chunks is false, one for each
// page.
func (r *Row) CountKeys(chunks bool) int {
	if chunks {
		return r.Size()
	}
	return len(r.Pages)
}

// Shape returns the shape that LMCache sends for a batch: the shape of the first object, which may be a short chunk.
func (b *Batch) Shape(l *protocol.Layout) protocol.Shape {
	if b.Size() == 1 && b.LastTokens < l.TokenCount() {
		if short, err := l.WithTokens(b.LastTokens); err == nil {
			return short.Shape
		}
	}
	return l.Shape
}

// Admission contains what a Put has received before its flow starts the put, or the reason that the put ends at once.
type Admission struct {
	engine.AcceptedPut
	Peer table.Handle // in the table of peers
	Code effects.Code
	Why  effects.Why

	chunks uint32
}

// AdmitPut accepts a Put and finds its peer, or refuses the Put and returns false. open is the number of the flow's
// open puts, and fits is the number of these chunks that one put can contain. A refusal changes nothing. If the Put is
// accepted but Admission.Code is not OK, the Put ends at once with an outcome like every accepted put, and counts in
// the notification to the proxy.
func AdmitPut(e *flow.Env, t effects.Ticket, c *engine.Put, open int, fits engine.ChunkLimit) (Admission, bool) {
	if code, why := e.CheckOwnTenants(c.Keys); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return Admission{}, false
	}
	taken, ok := e.Commands.AcceptPut(&e.Env, t, c, open, fits, e.Draining)
	a := Admission{AcceptedPut: taken}
	if ok {
		a.findPeer(e, link.PeerAddr(c.Peer), uint32(len(c.Keys)))
	}
	return a, ok
}

// AdmitCarried accepts a put of another flow and finds its peer. If Code of the result is not OK, the put ends at once.
func AdmitCarried(e *flow.Env, c *flow.CarriedPut) (a Admission) {
	a.Request, a.Operation, a.Timeout = c.Request, e.Commands.NextOperation(), c.Put.Timeout
	a.findPeer(e, link.PeerAddr(c.Put.Peer), 0)
	return a
}

// findPeer finds the peer of a put with this number of chunks, or sets the code and the reason. If chunks is 0, no
// circuit breaker stops the put.
func (a *Admission) findPeer(e *flow.Env, w link.PeerAddr, chunks uint32) {
	if a.chunks = chunks; chunks > 0 && e.Breakers.IsOpen(e.Now, w, chunks) {
		e.Out.Mark(Marks.PeerBackedOff)
		a.Code, a.Why = effects.BackedOff, e.Breakers.OpenReason(w)
		return
	}
	if a.Peer = e.Links.AcquirePeer(&e.Env, w); a.Peer == 0 {
		e.Out.Mark(Marks.PeersFull)
		a.Code, a.Why = effects.TooMany, effects.Why{
			Stage: effects.StageConnect, Field: "tables.peers", Ours: formatCount(e.Cfg.PeersMax) + ", all in use,",
			Remedy: "raise tables.peers, or retry",
		}
	}
}

// InitRow initializes the Row of a put, which ref names. InitRow reuses the memory of the Row that was here before.
func (r *Row) InitRow(e *flow.Env, c *engine.Put, a *Admission, ref kernel.Ref) {
	*r = Row{
		Op: engine.Op{Pages: r.Pages}, CarriedInfo: CarriedInfo{PresentPages: r.PresentPages[:0]},
		Batch: Batch{keys: r.keys[:0], keyEnds: r.keyEnds[:0], LastTokens: c.LastChunkTokens},
		Peer:  a.Peer, PeerAddr: link.PeerAddr(c.Peer), Request: a.Request, Operation: a.Operation, chunks: a.chunks,
		Trace: c.Trace,
	}
	r.BeginCommand(&e.Env, a.Ticket, c.Keys, c.Pages, a.Timeout)
	r.times.began, r.times.since = e.Now, e.Now
	r.EnterPhase(e, effects.PhaseQueue)
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.keyEnds = append(r.keyEnds, uint32(len(r.keys)))
	}
	if a.Ticket != 0 {
		e.Tickets.Add(a.Ticket, ref)
	}
}

// RecordPeer records the incarnation of the peer to which the put is about to be sent, and returns what that
// incarnation said in its handshake.
func (r *Row) RecordPeer(e *flow.Env) *link.Incarnation {
	remote := e.Links.IncarnationOf(r.Peer)
	_, r.PeerID = remote.Link()
	r.SelfID = remote.SelfID()
	return remote
}

// IsSamePeer reports whether the link is up to the incarnation to which the put was sent (M2).
func (r *Row) IsSamePeer(e *flow.Env) bool {
	state, _ := e.Links.Outbound(r.Peer).State()
	_, peer := e.Links.IncarnationOf(r.Peer).Link()
	return state == link.Ready && peer == r.PeerID
}

// SendRequest sends a request on the lane that the put has taken, and starts the timer for the reply. The reply goes to
// answered, the timeout to overdue. The driver copies the bytes of the pages in carries to the end of the body.
func (r *Row) SendRequest(e *flow.Env, body []byte, carries []effects.Page, replyRef, timeoutRef kernel.Ref) {
	e.Out.Send(effects.Send{Corr: e.Corrs.Open(replyRef), Conn: r.Conn, Body: e.Out.Cut(body), Carries: carries})
	e.Timers.Set(&r.replyTimer, e.Now.Add(e.Cfg.ReplyTimeout), timeoutRef)
}

// CloseLane closes the lane that the put has taken, so that a late reply is never taken for the reply to the next
// request.
func (r *Row) CloseLane(e *flow.Env, lane link.Lane) { e.Links.CloseLane(&e.Env, r.Peer, lane, r.Conn) }

// DeliverOutcome delivers the put's one outcome. If held is set, something still touches the put's memory, and the
// effect Return follows later.
func (r *Row) DeliverOutcome(e *flow.Env, code effects.Code, held bool, stage effects.Stage) {
	out := effects.Deliver{Code: code, Held: held}
	if code == effects.OK {
		out.Sent, out.Skipped = r.Sent, r.Skipped
	} else {
		out.Why = r.FinalReason(code, effects.Why{Addr: r.PeerAddr.InitAddr(), Peer: r.PeerID, Stage: stage})
	}
	if r.Requester.Owner != kernel.OwnerNone {
		e.Out.Observe(effects.Observe{
			Fact: effects.FactLayersSent, Code: code, Count: uint32(len(r.Pages)), ID: r.Operation, Peer: r.PeerID, Report: r.report(e),
		})
		r.RecordOutcome(&e.Env, held)
		e.CarriedResults = append(e.CarriedResults, flow.CarriedResult{
			Requester: r.Requester, Code: code, Held: r.IsHeld(), NoRoom: r.NoRoom && isTemporary(code), Why: out.Why,
			Grant: r.Grant, PresentPages: append([]uint32(nil), r.PresentPages...),
		})
		return
	}
	report := r.report(e) // The pages are counted before they go back.
	r.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactPutEnded, Code: code, Count: uint32(r.Size()), ID: uint64(r.Ticket), Peer: r.PeerID, Why: out.Why,
		Report: report,
	})
	e.Commands.LeaveRequest(&e.Env, r.Request, uint32(r.Size()), code)
}

// ReturnPages gives the memory back after an outcome with held set.
func (r *Row) ReturnPages(e *flow.Env) {
	if r.Requester.Owner == kernel.OwnerNone {
		r.Op.ReturnPages(&e.Env)
		return
	}
	r.ReleasePages(&e.Env)
	e.CarriedResults = append(e.CarriedResults, flow.CarriedResult{Requester: r.Requester, Returned: true})
}

// ReleaseResources releases everything that the Row has. The flow then removes the Row.
func (r *Row) ReleaseResources(e *flow.Env) {
	r.MustBeFinished()
	e.Timers.Stop(&r.Timer)
	e.Timers.Stop(&r.replyTimer)
	if r.Peer != 0 {
		e.Links.ReleasePeer(r.Peer)
	}
	if r.Ticket != 0 {
		e.Tickets.Remove(r.Ticket)
	}
	r.keys, r.keyEnds, r.Pages = table.TrimBytes(r.keys), table.TrimSlice(r.keyEnds), table.TrimSlice(r.Pages)
}

// isUnlinkable reports whether a put need not wait any longer for a link that is not open. If nobody listens at the
// peer's address, each put waits for one connection attempt that began after the put was queued, so that a peer that
// starts in the meantime is found.
func (r *Row) isUnlinkable(e *flow.Env, g link.Gate) bool {
	switch g {
	case link.GateUnfit:
		e.Out.Mark(Marks.PeerUnfit)
		return true
	case link.GateAbsent:
		if r.linkAttempt != e.Links.Outbound(r.Peer).AttemptNumber() {
			e.Out.Mark(Marks.NobodyThere)
			return true
		}
	case link.GateShut, link.GateSilent, link.GateOpen:
	}
	return false
}

// TimeoutCode returns the code of a put that has run out of time while it waited for its peer: the cause of the link's
// failure if that is known, else Expired.
func (r *Row) TimeoutCode(e *flow.Env) effects.Code {
	if state, cause := e.Links.Outbound(r.Peer).State(); state != link.Ready && cause != effects.OK {
		r.SetSharedReason(cause, e.Links.Outbound(r.Peer).FailureReason())
		return cause
	}
	return effects.Expired
}

// TimeoutReason returns the reason for any put that has run out of time.
func (r *Row) TimeoutReason() effects.Why {
	return effects.Why{Field: "put_timeout", Ours: r.Timeout.String(), Theirs: "no answer"}
}

// WaitTimeoutReason returns the reason for a put that has run out of time while it waited for its peer.
func (r *Row) WaitTimeoutReason(e *flow.Env) effects.Why {
	w := r.TimeoutReason()
	switch state, _ := e.Links.Outbound(r.Peer).State(); {
	case state == link.Ready:
		w.Theirs = "busy with what came before"
	case e.Links.Outbound(r.Peer).IsSilent():
		w = link.NoHelloReplyReason(w.Field, r.Timeout)
	default:
		w.Stage, w.Theirs = e.Links.Outbound(r.Peer).HandshakeStage(), "not connected"
	}
	return w
}

// ReportMalformed records and reports that a peer's reply is not valid.
func (r *Row) ReportMalformed(e *flow.Env, stage effects.Stage, why effects.Why) {
	r.SetReason(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.PeerAddr.InitAddr(), r.PeerID, stage
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.Conn), Peer: r.PeerID, Why: &why,
	})
}
