package p2p

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// take handles a Bring. A Bring that cannot be accepted is refused at once and changes nothing.
func (f *Requester) take(e *flow.Env, t effects.Ticket, c *Bring) {
	code, why := f.check(e, c)
	if code == effects.OK {
		here := prefix(e, c.Mode, e.Store.RequestHash(c.Request), c.Keys)
		switch {
		case int(here) == len(c.Keys):
			keep(e, c.Keys, e.Store.RequestHash(c.Request))
			e.Out.Deliver(effects.Deliver{Ticket: t, Hits: here})
		case f.Seeks.takes(c):
			code, why = f.Seeks.begin(e, t, c, here, f.patience(c.Patience), false)
		default:
			code, why = f.begin(e, t, 0, c, here)
		}
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
	}
}

// tooMany returns the refusal of a Bring because most Brings are in progress.
func tooMany(most int) (effects.Code, *effects.Why) {
	return effects.TooMany, &effects.Why{
		Field: "tables.shared", Ours: flow.Number(most) + ", and as many are in progress",
		Remedy: "retry when one has ended, or raise tables.shared",
	}
}

// patience returns the time limit of a Bring.
func (f *Requester) patience(asked effects.Duration) effects.Duration {
	return cmp.Or(asked, f.cfg.BringTimeout)
}

// begin starts a get, for an engine or for a seek. If it fails, nothing has changed.
func (f *Requester) begin(e *flow.Env, t effects.Ticket, by table.Handle, c *Bring, here uint32) (effects.Code,
	*effects.Why) {
	if f.gets.Full() {
		e.Out.Mark(Marks.BringsFull)
		return tooMany(f.gets.Max())
	}
	where := whereOf(c.From)
	if f.frozen.LeftAlone(e.Now, where, 0) {
		e.Out.Mark(Marks.FrozenPassed)
		return effects.BackedOff, f.whyFrozen()
	}
	peer := e.Links.Want(&e.Env, where)
	if peer == 0 {
		return effects.TooMany, &effects.Why{
			Field: "tables.peers", Ours: flow.Number(e.Cfg.PeersMax) + ", and all of them are in use",
			Remedy: "raise tables.peers",
		}
	}
	// From here on the Bring is accepted, so it is the trial request if the circuit breaker of the peer is half-open.
	f.frozen.Try(e.Now, where, f.cfg.LookupTimeout)
	patience := f.patience(c.Patience)
	h, r := f.gets.Add()
	f.operation++
	*r = get{
		ticket: t, by: by, lookup: append(r.lookup[:0], c.Request...), keys: r.keys[:0], ends: r.ends[:0],
		request: e.Store.RequestHash(c.Request), patience: patience, deadline: e.Now.Add(patience), here: here,
		peer: peer, where: where, operation: f.operation, mode: c.Mode, places: r.places[:0],
	}
	for _, key := range c.Keys {
		r.keys = append(r.keys, key...)
		r.ends = append(r.ends, uint32(len(r.keys)))
	}
	if s := f.Seeks.rows.Get(by); s != nil {
		s.get = h
	} else {
		e.Tickets.Add(t, getRef(timerGet, h))
	}
	e.Timers.Set(&r.timer, r.deadline, getRef(timerGet, h))
	f.becomeLinking(e, h, r)
	return effects.OK, nil
}

func whereOf(p Peer) link.Where { return link.Where{Host: p.Host, InitPort: p.InitPort} }

// whyFrozen returns the reason for refusing a get from a peer with an open circuit breaker.
func (f *Requester) whyFrozen() *effects.Why {
	return &effects.Why{
		Stage: effects.StageAsk, Field: "p2p_lookup_timeout_s", Ours: f.cfg.LookupTimeout.String(),
		Theirs: "no answer to a former question", Remedy: "look whether its process runs; it is asked again after a while",
	}
}

// check returns an error if a Bring is invalid.
func (f *Requester) check(e *flow.Env, c *Bring) (effects.Code, *effects.Why) {
	if code, why := e.CheckKeys(c.Keys); code != effects.OK {
		return code, why
	}
	switch {
	case len(c.Request) == 0:
		return effects.Invalid, flow.NoRequest()
	case len(c.Request) > int(f.cfg.RequestIDMax):
		return effects.TooLarge, &effects.Why{
			Field: "Request", Theirs: flow.Number(len(c.Request)) + " bytes", Ours: "at most " +
				flow.Number(f.cfg.RequestIDMax) + " (limits.request_bytes)",
		}
	case !f.Seeks.takes(c) && (c.From.Host == "" || c.From.InitPort == 0):
		return effects.Invalid, &effects.Why{
			Field: "From", Theirs: effects.Words([]byte(c.From.Host)) + ":" + flow.Number(uint32(c.From.InitPort)),
			Ours: "a host and a port, or nothing where directories are configured",
		}
	case c.Mode > Delayed || c.Mode == Delayed && !f.cfg.Keeps:
		return effects.Unsupported, &effects.Why{
			Field: "Mode", Theirs: c.Mode.String(), Ours: Pull.String() + " or " + Push.String(),
			Remedy: "for delayed set p2p_delay_pull: true",
		}
	}
	if e.Abandons.Has(e.Now, e.Store.RequestHash(c.Request)) {
		return effects.Cancelled, flow.WhyEnded(effects.Cancelled)
	}
	if fits := Fits(e.Cfg, c.Request, c.Keys, c.Mode); fits < len(c.Keys) {
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: flow.Number(len(c.Keys)), Ours: "at most " + flow.Number(fits) +
				" of these, which fill a message",
			Remedy: "ask for fewer at a time, or raise limits.message_bytes at both ends",
		}
	}
	return flow.Waitable("Patience", c.Patience)
}

const (
	headBytes = 512 // bytes of a request or reply without its chunks
	keyBytes  = 5   // overhead of a key
	// placeBytes is the size of a page's name: a uuid, an index and a generation.
	placeBytes = 58
)

// Fits returns how many of these chunks, from the first on, a single Bring for the request can name: the keys must
// fit in the request, and the places of the pages in the reply or, for a push, in the request.
func Fits(cfg *flow.Config, request []byte, keys [][]byte, mode Mode) int {
	most := min(len(keys), int(cfg.BatchMax))
	ask, answer := headBytes+len(request), headBytes
	for i, key := range keys[:most] {
		ask, answer = ask+len(key)+keyBytes, answer+placeBytes
		if mode == Push {
			ask += placeBytes
		}
		if max(ask, answer) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}

// keep claims chunks that are present for a request, as far as the limits for claims permit. It does nothing if the
// node is draining or the request was abandoned, because nobody would fetch the chunks.
func keep(e *flow.Env, keys [][]byte, request uint64) {
	if e.Draining || e.Abandons.Has(e.Now, request) {
		return
	}
	for _, key := range keys {
		at := e.Store.Find(e.Store.Hash(key), key)
		// A chunk that is not ready here is kept at its peer.
		if _, here := e.Store.Ready(at); here {
			e.Store.Claim(at, own, request, &e.Env)
		}
	}
}

// own is the fairness class of brought chunks: that of the node's own engine.
const own = 0

// deliver delivers the outcome of a get, once, with the length of the prefix that is present at this time.
func (f *Requester) deliver(e *flow.Env, r *get, code effects.Code) {
	if r.delivered {
		return
	}
	r.delivered = true
	e.Timers.Stop(&r.timer)
	f.withdrawGrant(e, r)
	f.keys = r.all(f.keys)
	hits := prefix(e, r.mode, r.request, f.keys)
	keep(e, f.keys[:hits], r.request)
	out := effects.Deliver{Ticket: r.ticket, Code: code, Hits: hits}
	if code != effects.OK {
		why := r.why
		switch {
		case r.code == code:
		case code == effects.NotFound:
			why = effects.Why{Field: flow.At("Keys", int(hits)), Theirs: "missing"}
		default:
			why = effects.Why{}
		}
		if why.Addr == (effects.Addr{}) {
			why.Addr, why.Peer = r.where.Addr(), r.who
		}
		if why.Stage == effects.StageNone {
			why.Stage = r.stage()
		}
		out.Why = &why
	}
	if r.by != 0 {
		f.Seeks.ended(r.by, &out, r.cut)
	} else {
		e.Out.Deliver(out)
	}
	brought := code
	if r.cut && code == effects.NotFound {
		// The owner has the chunks but lends only so many to a peer at a time.
		brought = effects.TooMany
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactBrought, Code: brought, Count: hits - min(hits, r.here), ID: uint64(r.ticket), Peer: r.who,
		Why: out.Why,
	})
}

// stage returns the stage of a get for a failure reason.
func (r *get) stage() effects.Stage {
	if r.phase == reading || r.phase == settling {
		return effects.StageTransfer
	}
	return effects.StageAsk
}

// blame records the reason to report if the get ends with this code.
func (r *get) blame(code effects.Code, why effects.Why) { r.code, r.why = code, why }

// end removes a get with a delivered outcome and nothing in flight.
func (f *Requester) end(e *flow.Env, h table.Handle, r *get) {
	if r.mode == Push {
		r.into = 0 // In push mode the grant ends separately.
	}
	if !r.delivered || r.into != 0 {
		panic("BUG: a get ended before its outcome, or its pages")
	}
	e.Timers.Stop(&r.answer)
	e.Links.Unwant(r.peer)
	if r.by == 0 {
		e.Tickets.Remove(r.ticket)
	}
	r.lookup, r.keys, r.ends = table.ShedBytes(r.lookup), table.ShedBytes(r.keys), table.Shed(r.ends)
	r.places = table.Shed(r.places)
	f.gets.Remove(h)
}
