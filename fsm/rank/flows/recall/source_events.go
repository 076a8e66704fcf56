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
		f.onOpened(e, ref.Subject, x)
	case *effects.ConnLost:
		f.onConnLost(e, ref.Subject)
	case *effects.Replied:
		f.onReplied(e, ref, x.Body)
	case *effects.Unanswered:
		f.onUnanswered(e, ref, x.Code)
	case *effects.TransferDone:
		f.onTransferDone(e, ref.Subject, x)
	case *effects.Settled:
		f.onSettled(e, ref.Subject)
	default:
		kernel.PanicUnexpected("the recall source")
	}
}

// OnTimer handles a deadline.
func (f *Source) OnTimer(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	r := f.rows.Get(h)
	if ref.Kind == timerReply {
		r.replyTimer = 0
		e.Out.Mark(Marks.AnswerOverdue)
		f.closeConn(e, r) // The query then ends as unanswered.
		return
	}
	r.Timer = 0
	code := effects.Expired
	r.SetReason(code, timeoutReason(r))
	if g, cause := e.Links.Outbound(r.peer).Gate(); r.phase == recallWaiting && g != link.GateOpen && cause != effects.OK {
		code = cause // The cause of the link's failure is more useful than the timeout.
		r.SetSharedReason(cause, e.Links.Outbound(r.peer).FailureReason())
	}
	f.failRecall(e, h, r, code)
}

// OnSignal handles a change of an outbound peer's link.
func (f *Source) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.PeerChanged {
		panic("BUG: recall.Source was given an event that it does not handle")
	}
	for slot := range f.conns.Slots() { // At most tables.peers ways.
		h := f.conns.At(slot)
		if w := f.conns.Get(h); w != nil && w.firstPeer(&f.rows) == ref.Subject {
			f.sendQueued(e, h)
		}
	}
}

// validateRecall returns OK if a Recall is valid, or else the code and the reason for refusing it.
func (f *Source) validateRecall(e *flow.Env, c *Recall) (effects.Code, effects.Why) {
	n := len(c.Keys)
	switch {
	case e.Draining:
		return effects.Draining, effects.Why{}
	case n == 0:
		return effects.Invalid, effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case n > int(e.Cfg.BatchMax):
		return effects.TooLarge, effects.Why{Field: "Keys", Theirs: formatCount(n), Ours: "at most " +
			formatCount(e.Cfg.BatchMax) + " (limits.keys_per_batch)"}
	case n != len(c.Pages):
		return effects.Invalid, effects.Why{
			Field: "Pages", Theirs: formatCount(len(c.Pages)), Ours: "one for each of " + formatCount(n) + " keys",
		}
	case c.Timeout < 0:
		return effects.Invalid, effects.Why{Field: "Timeout", Theirs: c.Timeout.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0 || c.Peer.QueryPort == 0:
		return effects.Invalid, effects.Why{
			Field: "Peer", Theirs: c.Peer.formatAddress(), Ours: "a host and three ports",
		}
	case len(c.Request) > int(f.cfg.RequestIDMax):
		return effects.TooLarge, effects.Why{
			Field: "Request", Theirs: formatCount(len(c.Request)) + " bytes", Ours: "at most " +
				formatCount(f.cfg.RequestIDMax) + " (limits.request_bytes)",
		}
	}
	var check protocol.KeyChecker
	var repeatedIndex int
	repeatedIndex, f.pageOrder = findRepeated(c.Pages, f.pageOrder[:0])
	for i, key := range c.Keys {
		if err := check.Check(key, e.Cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, effects.Why{Field: entryName("Keys", i), Theirs: effects.SanitizeText([]byte(err.Error()))}
		}
		if why := f.checkPage(e, c, i, repeatedIndex); why != nil {
			return effects.Invalid, *why
		}
	}
	if code, why := e.CheckOwnTenants(c.Keys); code != effects.OK {
		return code, *why
	}
	if fits := CountFitting(e.Cfg, c.Request, c.Keys); fits < n {
		return effects.TooLarge, effects.Why{
			Field: "Keys", Theirs: formatCount(n), Ours: "at most " + formatCount(fits) + " of these, which fill a message",
			Remedy: "recall fewer at a time, or raise limits.message_bytes at both ends",
		}
	}
	return effects.OK, effects.Why{}
}

// checkPage returns why page i of a Recall cannot be read into, or nil. repeatedIndex is the index of a page that was
// named before, or -1.
func (f *Source) checkPage(e *flow.Env, c *Recall, i, repeatedIndex int) *effects.Why {
	page := c.Pages[i]
	switch {
	case !e.EnginePool().IsReserved(page):
		return &effects.Why{Field: entryName("Pages", i), Theirs: "not a page of an open Reserve",
			Ours: "a page of a Reserve that was not released"}
	case e.EnginePool().HasHold(page) || !e.EnginePool().IsEvictable(page):
		return &effects.Why{Field: entryName("Pages", i), Theirs: "in use by a put or a recall", Ours: "an unused page"}
	}
	if i == repeatedIndex {
		return &effects.Why{Field: entryName("Pages", i), Theirs: "named twice", Ours: "a different page for each key"}
	}
	return nil
}

// findRepeated returns the index of the first page that an earlier index names too, or -1. It sorts, because a caller
// may give many pages. order is scratch memory.
func findRepeated(pages []effects.Page, order []uint64) (first int, _ []uint64) {
	for i, page := range pages {
		order = append(order, uint64(page.Index)<<32|uint64(i))
	}
	slices.Sort(order)
	first = -1
	for n := 1; n < len(order); n++ {
		index := int(uint32(order[n]))
		if order[n]>>32 == order[n-1]>>32 && (first < 0 || index < first) {
			first = index
		}
	}
	return first, order
}

var _ flow.Flow = (*Source)(nil)
