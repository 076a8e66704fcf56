package p2p

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// startBring handles a Bring. A Bring that cannot be accepted is refused at once and changes nothing.
func (f *Requester) startBring(e *flow.Env, t effects.Ticket, c *Bring) {
	code, why := f.validateBring(e, c)
	if code == effects.OK {
		present := countPrefix(e, c.Mode, e.Store.HashRequest(c.Request), c.Keys)
		switch {
		case int(present) == len(c.Keys):
			claimPresent(e, c.Keys, e.Store.HashRequest(c.Request))
			e.Out.Deliver(effects.Deliver{Ticket: t, Hits: present})
		case f.Searches.isSearch(c):
			code, why = f.Searches.startSearch(e, t, c, present, f.timeoutOrDefault(c.Timeout), false)
		default:
			code, why = f.startGet(e, t, 0, c, present)
		}
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
	}
}

// bringsFullReason returns the refusal of a Bring because limit Brings are in progress.
func bringsFullReason(limit int) (effects.Code, *effects.Why) {
	return effects.TooMany, &effects.Why{
		Field: "tables.shared", Ours: flow.FormatCount(limit) + ", and as many are in progress",
		Remedy: "retry when one has ended, or raise tables.shared",
	}
}

// timeoutOrDefault returns the time limit of a Bring.
func (f *Requester) timeoutOrDefault(requested effects.Duration) effects.Duration {
	return cmp.Or(requested, f.cfg.BringTimeout)
}

// startGet starts a get, for an engine or for a search. If it fails, nothing has changed.
func (f *Requester) startGet(e *flow.Env, t effects.Ticket, search table.Handle, c *Bring, present uint32) (effects.Code,
	*effects.Why) {
	if f.gets.Full() {
		e.Out.Mark(Marks.BringsFull)
		return bringsFullReason(f.gets.Max())
	}
	addr := addrOf(c.From)
	if f.breakers.IsOpen(e.Now, addr, 0) {
		e.Out.Mark(Marks.FrozenPassed)
		return effects.BackedOff, f.breakerOpenReason()
	}
	peer := e.Links.AcquirePeer(&e.Env, addr)
	if peer == 0 {
		return effects.TooMany, &effects.Why{
			Field: "tables.peers", Ours: flow.FormatCount(e.Cfg.PeersMax) + ", and all of them are in use",
			Remedy: "raise tables.peers",
		}
	}
	// From here on the Bring is accepted, so it is the trial request if the circuit breaker of the peer is half-open.
	f.breakers.AllowRequest(e.Now, addr, f.cfg.LookupTimeout)
	timeout := f.timeoutOrDefault(c.Timeout)
	h, r := f.gets.Add()
	f.lastOperation++
	*r = getRow{
		ticket: t, search: search, lookupID: append(r.lookupID[:0], c.Request...), keys: r.keys[:0], keyEnds: r.keyEnds[:0],
		requestHash: e.Store.HashRequest(c.Request), timeout: timeout, deadline: e.Now.Add(timeout), presentCount: present,
		peer: peer, peerAddr: addr, operation: f.lastOperation, mode: c.Mode, pageIndexes: r.pageIndexes[:0],
		trace: c.Trace,
	}
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.keyEnds = append(r.keyEnds, uint32(len(r.keys)))
	}
	if s := f.Searches.rows.Get(search); s != nil {
		s.activeGet = h
	} else {
		e.Tickets.Add(t, getRef(timerGet, h))
	}
	e.Timers.Set(&r.timer, r.deadline, getRef(timerGet, h))
	f.queueGet(e, h, r)
	return effects.OK, nil
}

func addrOf(p Peer) link.PeerAddr { return link.PeerAddr{Host: p.Host, InitPort: p.InitPort} }

// breakerOpenReason returns the reason for refusing a get from a peer with an open circuit breaker.
func (f *Requester) breakerOpenReason() *effects.Why {
	return &effects.Why{
		Stage: effects.StageAsk, Field: "p2p_lookup_timeout_s", Ours: f.cfg.LookupTimeout.String(),
		Theirs: "no answer to a former question", Remedy: "look whether its process runs; it is asked again after a while",
	}
}

// validateBring returns an error if a Bring is invalid.
func (f *Requester) validateBring(e *flow.Env, c *Bring) (effects.Code, *effects.Why) {
	if code, why := e.CheckKeys(c.Keys); code != effects.OK {
		return code, why
	}
	switch {
	case len(c.Request) == 0:
		return effects.Invalid, flow.NoRequestReason()
	case len(c.Request) > int(f.cfg.RequestIDMax):
		return effects.TooLarge, &effects.Why{
			Field: "Request", Theirs: flow.FormatCount(len(c.Request)) + " bytes", Ours: "at most " +
				flow.FormatCount(f.cfg.RequestIDMax) + " (limits.request_bytes)",
		}
	case !f.Searches.isSearch(c) && (c.From.Host == "" || c.From.InitPort == 0):
		return effects.Invalid, &effects.Why{
			Field: "From", Theirs: effects.SanitizeText([]byte(c.From.Host)) + ":" + flow.FormatCount(uint32(c.From.InitPort)),
			Ours: "a host and a port, or nothing where directories are configured",
		}
	case c.Mode > Delayed || c.Mode == Delayed && !f.cfg.Keeps:
		return effects.Unsupported, &effects.Why{
			Field: "Mode", Theirs: c.Mode.String(), Ours: Pull.String() + " or " + Push.String(),
			Remedy: "for delayed set p2p_delay_pull: true",
		}
	}
	if e.Abandons.IsAbandoned(e.Now, e.Store.HashRequest(c.Request)) {
		return effects.Cancelled, flow.EndReason(effects.Cancelled)
	}
	if fits := CountFitting(e.Cfg, c.Request, c.Keys, c.Mode); fits < len(c.Keys) {
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: flow.FormatCount(len(c.Keys)), Ours: "at most " + flow.FormatCount(fits) +
				" of these, which fill a message",
			Remedy: "ask for fewer at a time, or raise limits.message_bytes at both ends",
		}
	}
	return flow.CheckDuration("Timeout", c.Timeout)
}

const (
	headerBytes      = 512 // bytes of a request or reply without its chunks
	keyOverheadBytes = 5   // overhead of a key
	// pageNameBytes is the size of a page's name: a uuid, an index and a generation.
	pageNameBytes = 58
)

// CountFitting returns how many of these chunks, from the first on, a single Bring for the request can name: the keys
// must fit in the request, and the places of the pages in the reply or, for a push, in the request.
func CountFitting(cfg *flow.Config, request []byte, keys [][]byte, mode Mode) int {
	limit := min(len(keys), int(cfg.BatchMax))
	requestBytes, replyBytes := headerBytes+len(request), headerBytes
	for i, key := range keys[:limit] {
		requestBytes, replyBytes = requestBytes+len(key)+keyOverheadBytes, replyBytes+pageNameBytes
		if mode == Push {
			requestBytes += pageNameBytes
		}
		if max(requestBytes, replyBytes) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return limit
}

// claimPresent claims chunks that are present for a request, as far as the limits for claims permit. It does nothing if
// the node is draining or the request was abandoned, because nobody would fetch the chunks.
func claimPresent(e *flow.Env, keys [][]byte, request uint64) {
	if e.Draining || e.Abandons.IsAbandoned(e.Now, request) {
		return
	}
	for _, key := range keys {
		chunk := e.Store.Find(e.Store.HashKey(key), key)
		// A chunk that is not ready here is kept at its peer.
		if _, ready := e.Store.ReadyPage(chunk); ready {
			e.Store.ClaimEntry(chunk, ownClass, request, &e.Env)
		}
	}
}

// ownClass is the fairness class of brought chunks: that of the node's own engine.
const ownClass = 0

// deliverOutcome delivers the outcome of a get, once, with the length of the prefix that is present at this time.
func (f *Requester) deliverOutcome(e *flow.Env, r *getRow, code effects.Code) {
	if r.delivered {
		return
	}
	r.delivered = true
	e.Timers.Stop(&r.timer)
	f.revokeGrant(e, r)
	f.keys = r.listKeys(f.keys)
	hits := countPrefix(e, r.mode, r.requestHash, f.keys)
	claimPresent(e, f.keys[:hits], r.requestHash)
	out := effects.Deliver{Ticket: r.ticket, Code: code, Hits: hits}
	if code != effects.OK {
		why := r.why
		switch {
		case r.code == code:
		case code == effects.NotFound:
			why = effects.Why{Field: flow.EntryName("Keys", int(hits)), Theirs: "missing"}
		default:
			why = effects.Why{}
		}
		if why.Addr == (effects.Addr{}) {
			why.Addr, why.Peer = r.peerAddr.InitAddr(), r.peerID
		}
		if why.Stage == effects.StageNone {
			why.Stage = r.reportStage()
		}
		out.Why = &why
	}
	if r.search != 0 {
		f.Searches.recordGetOutcome(r.search, &out, r.shareUsedUp)
	} else {
		e.Out.Deliver(out)
	}
	observedCode := code
	if r.shareUsedUp && code == effects.NotFound {
		// The owner has the chunks but lends only so many to a peer at a time.
		observedCode = effects.TooMany
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactBrought, Code: observedCode, Count: hits - min(hits, r.presentCount), ID: uint64(r.ticket), Peer: r.peerID,
		Why: out.Why,
	})
}

// reportStage returns the stage of a get for a failure reason.
func (r *getRow) reportStage() effects.Stage {
	if r.phase == getReading || r.phase == getSettling || r.phase == getVerifying {
		return effects.StageTransfer
	}
	return effects.StageAsk
}

// setReason records the reason to report if the get ends with this code.
func (r *getRow) setReason(code effects.Code, why effects.Why) { r.code, r.why = code, why }

// removeGet removes a get with a delivered outcome and nothing in flight.
func (f *Requester) removeGet(e *flow.Env, h table.Handle, r *getRow) {
	if r.mode == Push {
		r.writeGrant = 0 // In push mode the grant ends separately.
	}
	if !r.delivered || r.writeGrant != 0 {
		panic("BUG: a get ended before its outcome, or its pages")
	}
	e.Timers.Stop(&r.replyTimer)
	e.Links.ReleasePeer(r.peer)
	if r.search == 0 {
		e.Tickets.Remove(r.ticket)
	}
	r.lookupID, r.keys, r.keyEnds = table.TrimBytes(r.lookupID), table.TrimBytes(r.keys), table.TrimSlice(r.keyEnds)
	r.pageIndexes = table.TrimSlice(r.pageIndexes)
	f.gets.Remove(h)
}
