package recall

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// Step handles the completions of the effects that the Source requested.
func (f *Source) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Opened:
		f.opened(e, ref.Subject, x)
	case *effects.ConnLost:
		f.lost(e, ref.Subject)
	case *effects.Replied:
		f.replied(e, ref, x.Body)
	case *effects.Unanswered:
		f.unanswered(e, ref, x.Code)
	case *effects.TransferDone:
		f.transferred(e, ref.Subject, x)
	case *effects.Settled:
		f.settled(e, ref.Subject)
	default:
		kernel.Foreign("who recalls")
	}
}

// Due handles a deadline.
func (f *Source) Due(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	r := f.rows.Get(h)
	if ref.Kind == timerAnswer {
		r.answer = 0
		e.Out.Mark(Marks.AnswerOverdue)
		f.hangUp(e, r) // The query then ends as unanswered.
		return
	}
	r.Timer = 0
	code := effects.Expired
	r.Blame(code, outOfTime(r))
	if g, cause := e.Links.Outbound(r.peer).Gate(); r.phase == waiting && g != link.GateOpen && cause != effects.OK {
		code = cause // The cause of the link's failure is more useful than the timeout.
		r.BlameAs(cause, e.Links.Outbound(r.peer).Why())
	}
	f.stop(e, h, r, code)
}

// Signal handles a change of an outbound peer's link.
func (f *Source) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Changed {
		panic("BUG: recall.Source is told of what it has nothing to do with")
	}
	for slot := range f.ways.Slots() { // At most tables.peers ways.
		h := f.ways.At(slot)
		if w := f.ways.Get(h); w != nil && w.first(&f.rows) == ref.Subject {
			f.pump(e, h)
		}
	}
}

// check returns OK if a Recall is valid, or else the code and the reason for refusing it.
func (f *Source) check(e *flow.Env, c *Recall) (effects.Code, effects.Why) {
	n := len(c.Keys)
	switch {
	case e.Draining:
		return effects.Draining, effects.Why{}
	case n == 0:
		return effects.Invalid, effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case n > int(e.Cfg.BatchMax):
		return effects.TooLarge, effects.Why{Field: "Keys", Theirs: number(n), Ours: "at most " +
			number(e.Cfg.BatchMax) + " (limits.keys_per_batch)"}
	case n != len(c.Pages):
		return effects.Invalid, effects.Why{
			Field: "Pages", Theirs: number(len(c.Pages)), Ours: "one for each of " + number(n) + " keys",
		}
	case c.Patience < 0:
		return effects.Invalid, effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0 || c.Peer.QueryPort == 0:
		return effects.Invalid, effects.Why{
			Field: "Peer", Theirs: c.Peer.words(), Ours: "a host and three ports",
		}
	case len(c.Request) > int(f.cfg.RequestIDMax):
		return effects.TooLarge, effects.Why{
			Field: "Request", Theirs: number(len(c.Request)) + " bytes", Ours: "at most " +
				number(f.cfg.RequestIDMax) + " (limits.request_bytes)",
		}
	}
	var check protocol.KeyCheck
	var again int
	again, f.order = repeated(c.Pages, f.order[:0])
	for i, key := range c.Keys {
		if err := check.Check(key, e.Cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
		if why := f.page(e, c, i, again); why != nil {
			return effects.Invalid, *why
		}
	}
	if fits := Fits(e.Cfg, c.Request, c.Keys); fits < n {
		return effects.TooLarge, effects.Why{
			Field: "Keys", Theirs: number(n), Ours: "at most " + number(fits) + " of these, which fill a message",
			Remedy: "recall fewer at a time, or raise limits.message_bytes at both ends",
		}
	}
	return effects.OK, effects.Why{}
}

// page returns why page i of a Recall cannot be read into, or nil. again is the index of a page that was named
// before, or -1.
func (f *Source) page(e *flow.Env, c *Recall, i, again int) *effects.Why {
	page := c.Pages[i]
	switch {
	case !e.Filled().Reserved(page):
		return &effects.Why{Field: at("Pages", i), Theirs: "none of a Reserve that was not released", Ours: "one"}
	case e.Filled().Held(page) || !e.Filled().Evictable(page):
		return &effects.Why{Field: at("Pages", i), Theirs: "in use by a put or a recall", Ours: "one that nothing uses"}
	}
	if i == again {
		return &effects.Why{Field: at("Pages", i), Theirs: "named before", Ours: "one for each key"}
	}
	return nil
}

// repeated returns the index of the first page that an earlier index names too, or -1. It sorts, because a caller
// may give many pages. order is scratch memory.
func repeated(pages []effects.Page, order []uint64) (first int, _ []uint64) {
	for i, page := range pages {
		order = append(order, uint64(page.Index)<<32|uint64(i))
	}
	slices.Sort(order)
	first = -1
	for n := 1; n < len(order); n++ {
		at := int(uint32(order[n]))
		if order[n]>>32 == order[n-1]>>32 && (first < 0 || at < first) {
			first = at
		}
	}
	return first, order
}

var _ flow.Flow = (*Source)(nil)
