package push

import (
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// becomeAsking sends the AllocRequest of a put over conn. If the peer cannot take the put in any form, the put
// ends as unsupported. The lease counts from this step: the instant provably precedes the receiver's grant (rule
// M4).
func (f *Source) becomeAsking(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	if why, fits := p.fits(e); !fits {
		e.Links.Untake(&e.Env, p.Peer, link.LaneAlloc, conn)
		p.Blame(effects.Unsupported, why)
		p.deliver(e, effects.Unsupported)
		f.end(e, h, p)
		return
	}
	p.phase, p.Conn, p.asked = sourceAsking, conn, e.Now
	if f.puts.Tries(&p.Row); p.Attempt == 1 {
		p.since = e.Now
	}
	p.Listens = p.Meet(e).Commits()
	m := &f.ask
	f.text = p.names(m, f.text[:0])
	layout, _ := p.layout(e)
	m.Format, m.Shape, m.Dtype = layout.Format, p.Shape(&layout), layout.Dtype
	m.LastChunkTokens = p.LastTokens
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.Us), To: protocol.UUID(p.Who),
		Operation: p.Operation, Attempt: p.Attempt, Request: e.Commands.Request(p.Request),
		PatienceNS: uint64(max(0, min(e.Cfg.AllocTimeout, p.Deadline.Sub(e.Now)))),
		Commit:     m.Ext.Commit[:0], Abort: m.Ext.Abort[:0],
	}
	if p.For.Owner != kernel.OwnerNone && p.Opened == 0 {
		// A request that waits for pages would hold up the layers behind, which need no pages and may free some
		// by ending. So the request does not wait, and the flow of the put tries again.
		m.Ext.PatienceNS = 0
	}
	if p.Layers > 0 && !p.chunks {
		m.Ext.Layers = p.Layers
		m.Shape, m.Ext.Epoch, m.Ext.Opened = e.Cfg.Layout.Shape, p.Epoch, uint64(p.Opened)
	}
	f.carry(e, h, p)
}

// carry sends the AllocRequest. The request also carries the chunks themselves if they are small enough for the
// peer and for one message. The receiver may take the chunks from the request, or reply as if they were absent;
// then the chunks are written over the data plane.
func (f *Source) carry(e *flow.Env, h table.Handle, p *outgoing) {
	m := &f.ask
	bytes := uint64(0)
	for i := range p.Pages {
		bytes += uint64(p.Pages[i].Length)
	}
	p.carried = p.Layers == 0 && bytes <= uint64(e.Links.Of(p.Peer).Carries()) &&
		p.askBytes()+bytes <= uint64(e.Cfg.Wire.MessageBytes)
	if !p.carried {
		f.send(e, h, p, nil, sourceAsk)
		return
	}
	e.Out.Mark(Marks.Carried)
	f.bytes = slices.Grow(f.bytes[:0], int(bytes))[:bytes] // The driver fills in the bytes.
	m.Ext.Carried = f.bytes
	f.send(e, h, p, p.Pages, sourceAsk)
	m.Ext.Carried = nil
}

// onTaken handles a reply by which the receiver took the chunks from the request itself: the chunks are readable
// there, and the put is over.
func (f *Source) onTaken(e *flow.Env, h table.Handle, p *outgoing) {
	m := &f.reply
	n := uint32(p.Size())
	if !p.carried || len(m.RemoteIndexes) > 0 || uint64(m.Ext.Taken)+uint64(len(m.AlreadySent)) != uint64(n) {
		f.senseless(e, h, p)
		return
	}
	if p.Delivered() {
		e.Out.Mark(put.Marks.ReplyAfterOutcome)
	} else {
		e.Out.Mark(Marks.Taken)
		p.Sent, p.Skipped = m.Ext.Taken, uint32(len(m.AlreadySent))
		p.deliver(e, effects.OK)
	}
	f.end(e, h, p)
}

// senseless ends a put after a reply that does not match the request.
func (f *Source) senseless(e *flow.Env, h table.Handle, p *outgoing) {
	e.Out.Mark(put.Marks.ReplySenseless)
	theirs := strconv.Itoa(len(f.reply.RemoteIndexes)) + " pages and " + strconv.Itoa(len(f.reply.AlreadySent)) +
		" chunks that do not fit them"
	if f.reply.Ext.Taken > 0 {
		theirs += ", and " + strconv.Itoa(int(f.reply.Ext.Taken)) + " taken"
	}
	p.Malformed(e, p.stage(), effects.Why{
		Field: "AllocResponse", Ours: strconv.Itoa(p.Keys(p.chunks)) + " chunks asked for", Theirs: theirs,
	})
	f.fail(e, h, p, effects.Malformed)
}

// fits reports whether the put can be sent to the peer's present incarnation, or else the reason. fits also sets
// whether the put names chunks or layers.
func (p *outgoing) fits(e *flow.Env) (why effects.Why, fits bool) {
	of := e.Links.Of(p.Peer)
	p.chunks = p.Whole && of.Chunks()
	switch {
	case p.chunks || p.Layers > 0 && of.Layers() == p.Layers:
		return why, true
	case p.Layers > 0:
		return noLayers(p.Layers, of.Layers()), false
	case of.Chunks() && of.PageBytes() != e.Cfg.PageBytes:
		return effects.Why{
			Field: "kvf_page_bytes", Ours: flow.Number(e.Cfg.PageBytes), Theirs: flow.Number(of.PageBytes()),
			Remedy: "send it layer by layer, by SaveLayer, or set use_layerwise to the same at both ends",
		}, false
	}
	return why, true
}

// layout returns the layout of what one page of the receiver holds, and the number of stripes in which a layer
// lies there.
func (p *outgoing) layout(e *flow.Env) (protocol.Layout, uint32) {
	if !p.chunks {
		return e.Cfg.Layout, 0
	}
	whole, stripes, ok := e.Cfg.Layout.Whole(p.Layers)
	if !ok {
		panic("BUG: a receiver has pages of a layout that there is not")
	}
	return whole, stripes
}

// names sets the keys of the message m: the keys of the put, or one key for each layer of the chunks. The text of
// layer keys is appended to text, which is returned.
func (p *outgoing) names(m *protocol.AllocRequest, text []byte) []byte {
	m.Keys = m.Keys[:0]
	for i := range p.Size() {
		if p.chunks || !p.Whole {
			m.Keys = append(m.Keys, p.Key(i))
			continue
		}
		for layer := range p.Layers {
			from := len(text)
			text = protocol.AppendLayerKey(text, p.Key(i), layer)
			m.Keys = append(m.Keys, text[from:len(text):len(text)])
		}
	}
	return text
}

// becomeConfirming sends the commit or the abort of the grant. The message names the incarnation of the peer that
// granted (M6). A restarted receiver numbers its grants anew, and could otherwise apply the message to a grant of
// another sender (testdata/commit_after_restart.txt).
func (f *Source) becomeConfirming(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.phase, p.Conn = sourceConfirming, conn
	m := &f.ask
	m.Keys = m.Keys[:0]
	m.Format, m.Shape, m.Dtype = e.Cfg.Layout.Format, e.Cfg.Layout.Shape, e.Cfg.Layout.Dtype
	m.LastChunkTokens = 0
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.Us), To: protocol.UUID(p.Who), Operation: p.Operation,
		Commit: m.Ext.Commit[:0], Abort: m.Ext.Abort[:0],
	}
	if p.aborting {
		m.Ext.Abort = append(m.Ext.Abort, uint64(p.Grant))
		m.Ext.Code, m.Ext.Reason = p.Reason()
	} else {
		m.Ext.Commit = append(m.Ext.Commit, uint64(p.Grant))
	}
	f.send(e, h, p, nil, sourceCommit)
}

func (f *Source) send(e *flow.Env, h table.Handle, p *outgoing, carries []effects.Page, kind uint8) {
	p.Send(e, f.ask.Append(e.Out.Arena()), carries, sourceRef(kind, h), sourceRef(sourceAnswer, h))
}

// onUnanswered handles the end of a request to which no reply came.
func (f *Source) onUnanswered(e *flow.Env, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.Unanswered(e, p.lane())
	if ref.Kind == sourceAsk {
		f.puts.Charge(&p.Row)
	}
	p.Conn = 0
	switch {
	case ref.Kind == sourceAsk:
		f.unanswered(e, h, p, code, put.HungUp(e, code))
	case p.Delivered():
		f.end(e, h, p)
	default:
		// A commit is idempotent, so the commit is repeated until the put's deadline.
		e.Out.Mark(Marks.CommitAgain)
		f.becomeCommitting(e, h, p)
	}
}

// unanswered sends the request again, or ends the put with a reason when all attempts are used up.
func (f *Source) unanswered(e *flow.Env, h table.Handle, p *outgoing, code effects.Code, why effects.Why) {
	switch {
	case p.Delivered():
		// A grant that the lost reply may have named ends with its lease.
		f.end(e, h, p)
	case p.Failed < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.AskAgain)
		f.becomeWaiting(e, h, p)
	default:
		p.Blame(put.NoAnswer(code), why)
		p.deliver(e, put.NoAnswer(code))
		f.end(e, h, p)
	}
}

// onReplied handles a reply, and frees the place on the lane for the next request.
func (f *Source) onReplied(e *flow.Env, ref kernel.Ref, body []byte) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.Answered(e, p.lane())
	if ref.Kind == sourceAsk {
		e.Breakers.Answered(e.Now, p.Where)
		f.onGranted(e, h, p, body)
		return
	}
	f.onCommitted(e, h, p, body)
}

// onGranted handles the reply to an AllocRequest, which may grant pages, take the chunks, or refuse.
func (f *Source) onGranted(e *flow.Env, h table.Handle, p *outgoing, body []byte) {
	if !p.Met(e) {
		// The link was lost while the reply was in the mailbox: the reply names an incarnation that this rank may
		// not be able to reach any more.
		e.Out.Mark(Marks.ReplyAfterLink)
		_, cause := e.Links.Outbound(p.Peer).State()
		why := effects.Why{}
		if w := e.Links.Outbound(p.Peer).Why(); w != nil {
			why = *w
		}
		// The link is up again, to another incarnation. Nothing was sent, so this is no success.
		if cause == effects.OK {
			cause, why = effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which was asked"}
		}
		f.unanswered(e, h, p, cause, why)
		return
	}
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(put.Marks.ReplyMalformed)
		p.Malformed(e, p.stage(), link.Undecodable(err))
		f.fail(e, h, p, effects.Malformed)
		return
	}
	if m.HasExt {
		p.Grant = effects.GrantID(m.Ext.Grant)
	}
	// The synchronous upstream form cannot express a refusal; the code in our extension can.
	if m.AllocFailed || m.HasExt && m.Ext.Code != 0 {
		f.onRefused(e, h, p)
		return
	}
	if m.HasExt && m.Ext.Taken > 0 {
		f.onTaken(e, h, p)
		return
	}
	if p.Delivered() {
		e.Out.Mark(put.Marks.ReplyAfterOutcome)
		f.giveBack(e, h, p)
		return
	}
	if !f.plan(e.Links.Of(p.Peer), p) {
		f.senseless(e, h, p)
		return
	}
	if len(f.pairs) == 0 {
		e.Out.Mark(put.Marks.AllSkipped)
		p.deliver(e, effects.OK)
		f.end(e, h, p)
		return
	}
	f.becomeMoving(e, h, p)
}

func (f *Source) onRefused(e *flow.Env, h table.Handle, p *outgoing) {
	code := effects.NoMemory
	if f.reply.HasExt && f.reply.Ext.Code != 0 {
		code = effects.CodeFromWire(f.reply.Ext.Code)
	}
	if code == effects.Stale {
		e.Out.Mark(put.Marks.AskedStale)
		e.Links.Fail(&e.Env, p.Peer, effects.Stale, put.AtStage(effects.StageAsk, put.Said(f.reply.Ext.Reason)))
		if !p.Delivered() && p.Failed < e.Cfg.AttemptsMax {
			f.becomeWaiting(e, h, p)
			return
		}
	}
	e.Out.Mark(put.Marks.AllocFailed)
	words := effects.Words(f.reply.Ext.Reason)
	p.Blame(code, put.RefusalOf(words))
	p.NoRoom = true
	if !p.Delivered() {
		p.deliver(e, code)
	}
	// This precedes the giving back of a grant that arrived beside the refusal, because that lets the next put be
	// sent.
	if p.Refused(e, code, words) {
		f.stopLeftAlone(e, p.Peer)
	}
	f.giveBack(e, h, p)
}

// noLayers explains that the peer's pages hold whole chunks, or that the numbers of layers differ.
func noLayers(ours, theirs uint32) effects.Why {
	return effects.Why{
		Field: "kvf_layers", Ours: flow.Number(ours), Theirs: flow.Number(theirs),
		Remedy: "set use_layerwise: true at both ends",
	}
}

// fail delivers the given code unless the put has an outcome already, and then gives the grant back.
func (f *Source) fail(e *flow.Env, h table.Handle, p *outgoing, code effects.Code) {
	if !p.Delivered() {
		p.deliver(e, code)
	}
	f.giveBack(e, h, p)
}

// giveBack ends the row and tells the receiver that the grant will not be used any more, so that the receiver
// need not wait for the end of the lease. A receiver without support for aborts is sent nothing and waits.
// Invariant: nothing of this rank stores under the grant any more (M1, M4).
func (f *Source) giveBack(e *flow.Env, h table.Handle, p *outgoing) {
	if p.Grant == 0 || !p.Listens {
		f.end(e, h, p)
		return
	}
	p.aborting = true
	f.becomeCommitting(e, h, p)
}
