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

// sendAllocRequest sends the AllocRequest of a put over conn. If the peer cannot take the put in any form, the put
// ends as unsupported; if the peer lacks the tenant of the put, as forbidden. The lease counts from this step: the
// instant provably precedes the receiver's grant (rule M4).
func (f *Source) sendAllocRequest(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	if code, why := p.fitToPeer(e); code != effects.OK {
		e.Links.ReturnLane(p.Peer, link.LaneAlloc, conn)
		p.SetReason(code, why)
		p.deliverOutcome(e, code)
		f.removePut(e, h, p)
		return
	}
	p.phase, p.Conn, p.sentAt = putRequesting, conn, e.Now
	p.EnterPhase(e, effects.PhaseAllocation)
	if f.puts.CountAttempt(&p.Row); p.Attempt == 1 {
		p.firstSentAt = e.Now
	}
	p.AcceptsFinal = p.RecordPeer(e).AcceptsCommits()
	m := &f.request
	f.layerKeys = p.setMessageKeys(m, f.layerKeys[:0])
	layout, _ := p.remoteLayout(e)
	m.Format, m.Shape, m.Dtype = layout.Format, p.Shape(&layout), layout.Dtype
	m.LastChunkTokens = p.LastTokens
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.SelfID), To: protocol.UUID(p.PeerID),
		Operation: p.Operation, Attempt: p.Attempt, Request: e.Commands.RequestID(p.Request),
		PatienceNS: uint64(max(0, min(e.Cfg.AllocTimeout, p.Deadline.Sub(e.Now)))),
		Commit:     m.Ext.Commit[:0], Abort: m.Ext.Abort[:0], Sums: m.Ext.Sums[:0],
	}
	m.Ext.Trace = p.Trace.Context.Wire()
	for i := range p.Pages {
		if !p.namesChunks { // Otherwise the layers of a chunk are gathered into one page, of which no checksum is known.
			m.Ext.Sums = effects.AppendSum(m.Ext.Sums, i, p.Pages[i].Sum)
		}
	}
	if p.Requester.Owner != kernel.OwnerNone && p.OpeningGrant == 0 {
		// A request that waits for pages would hold up the layers behind, which need no pages and may free some
		// by ending. So the request does not wait, and the flow of the put tries again.
		m.Ext.PatienceNS = 0
	}
	if p.Layers > 0 && !p.namesChunks {
		m.Ext.Layers = p.Layers
		m.Shape, m.Ext.Epoch, m.Ext.Opened = e.Cfg.Layout.Shape, p.Epoch, uint64(p.OpeningGrant)
	}
	f.sendWithChunks(e, h, p)
}

// sendWithChunks sends the AllocRequest. The request also carries the chunks themselves if they are small enough for
// the peer and for one message. The receiver may take the chunks from the request, or reply as if they were absent;
// then the chunks are written over the data plane.
func (f *Source) sendWithChunks(e *flow.Env, h table.Handle, p *putRow) {
	m := &f.request
	totalBytes := uint64(0)
	for i := range p.Pages {
		totalBytes += uint64(p.Pages[i].Length)
	}
	p.chunksCarried = p.Layers == 0 && totalBytes <= uint64(e.Links.IncarnationOf(p.Peer).CarryBytes()) &&
		p.requestBytes()+totalBytes <= uint64(e.Cfg.Wire.MessageBytes)
	if !p.chunksCarried {
		f.sendMessage(e, h, p, nil, kindRequest)
		return
	}
	e.Out.Mark(Marks.Carried)
	f.carriedBytes = slices.Grow(f.carriedBytes[:0], int(totalBytes))[:totalBytes] // The driver fills in the bytes.
	m.Ext.Carried = f.carriedBytes
	f.sendMessage(e, h, p, p.Pages, kindRequest)
	m.Ext.Carried = nil
}

// handleTaken handles a reply by which the receiver took the chunks from the request itself: the chunks are readable
// there, and the put is over.
func (f *Source) handleTaken(e *flow.Env, h table.Handle, p *putRow) {
	m := &f.reply
	n := uint32(p.Size())
	if !p.chunksCarried || len(m.RemoteIndexes) > 0 || uint64(m.Ext.Taken)+uint64(len(m.AlreadySent)) != uint64(n) {
		f.failInvalidReply(e, h, p)
		return
	}
	if p.IsDelivered() {
		e.Out.Mark(put.Marks.ReplyAfterOutcome)
	} else {
		e.Out.Mark(Marks.Taken)
		p.Sent, p.Skipped = m.Ext.Taken, uint32(len(m.AlreadySent))
		p.deliverOutcome(e, effects.OK)
	}
	f.removePut(e, h, p)
}

// failInvalidReply ends a put after a reply that does not match the request.
func (f *Source) failInvalidReply(e *flow.Env, h table.Handle, p *putRow) {
	e.Out.Mark(put.Marks.ReplySenseless)
	theirs := strconv.Itoa(len(f.reply.RemoteIndexes)) + " pages and " + strconv.Itoa(len(f.reply.AlreadySent)) +
		" chunks that do not fit them"
	if f.reply.Ext.Taken > 0 {
		theirs += ", and " + strconv.Itoa(int(f.reply.Ext.Taken)) + " taken"
	}
	p.ReportMalformed(e, p.reportStage(), effects.Why{
		Field: "AllocResponse", Ours: strconv.Itoa(p.CountKeys(p.namesChunks)) + " chunks asked for", Theirs: theirs,
	})
	f.failPut(e, h, p, effects.Malformed)
}

// fitToPeer returns OK if the put can be sent to the peer's present incarnation, and otherwise a code and the reason. It
// also sets whether the put names chunks or layers.
func (p *putRow) fitToPeer(e *flow.Env) (code effects.Code, why effects.Why) {
	remote := e.Links.IncarnationOf(p.Peer)
	if why := remote.CheckReceiver(&e.Env, p.Tenant()); why != nil {
		return effects.Forbidden, *why
	}
	p.namesChunks = p.WholeChunks && remote.HasWholeChunks()
	switch {
	case p.namesChunks || p.Layers > 0 && remote.Layers() == p.Layers:
		return effects.OK, why
	case p.Layers > 0:
		return effects.Unsupported, noLayersReason(p.Layers, remote.Layers())
	case remote.HasWholeChunks() && remote.PageBytes() != e.Cfg.PageBytes:
		return effects.Unsupported, effects.Why{
			Field: "kvf_page_bytes", Ours: flow.FormatCount(e.Cfg.PageBytes), Theirs: flow.FormatCount(remote.PageBytes()),
			Remedy: "send it layer by layer, by SaveLayer, or set use_layerwise to the same at both ends",
		}
	}
	return effects.OK, why
}

// remoteLayout returns the layout of what one page of the receiver holds, and the number of stripes in which a layer
// lies there.
func (p *putRow) remoteLayout(e *flow.Env) (protocol.Layout, uint32) {
	if !p.namesChunks {
		return e.Cfg.Layout, 0
	}
	whole, stripes, ok := e.Cfg.Layout.AllLayers(p.Layers)
	if !ok {
		panic("BUG: a receiver has pages of a layout that there is not")
	}
	return whole, stripes
}

// setMessageKeys sets the keys of the message m: the keys of the put, or one key for each layer of the chunks. The text
// of layer keys is appended to text, which is returned.
func (p *putRow) setMessageKeys(m *protocol.AllocRequest, text []byte) []byte {
	m.Keys = m.Keys[:0]
	for i := range p.Size() {
		if p.namesChunks || !p.WholeChunks {
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

// sendCommitOrAbort sends the commit or the abort of the grant. The message names the incarnation of the peer that
// granted (M6). A restarted receiver numbers its grants anew, and could otherwise apply the message to a grant of
// another sender (testdata/commit_after_restart.txt).
func (f *Source) sendCommitOrAbort(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.phase, p.Conn = putConfirming, conn
	m := &f.request
	m.Keys = m.Keys[:0]
	m.Format, m.Shape, m.Dtype = e.Cfg.Layout.Format, e.Cfg.Layout.Shape, e.Cfg.Layout.Dtype
	m.LastChunkTokens = 0
	m.HasExt = true
	m.Ext = protocol.AllocExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.SelfID), To: protocol.UUID(p.PeerID), Operation: p.Operation,
		Commit: m.Ext.Commit[:0], Abort: m.Ext.Abort[:0], Sums: m.Ext.Sums[:0],
	}
	if p.abortGrant {
		m.Ext.Abort = append(m.Ext.Abort, uint64(p.Grant))
		m.Ext.Code, m.Ext.Reason = p.ReasonForPeer()
	} else {
		m.Ext.Commit = append(m.Ext.Commit, uint64(p.Grant))
	}
	f.sendMessage(e, h, p, nil, kindCommit)
}

func (f *Source) sendMessage(e *flow.Env, h table.Handle, p *putRow, carries []effects.Page, kind uint8) {
	p.SendRequest(e, f.request.Append(e.Out.Arena()), carries, sourceRef(kind, h), sourceRef(timerReply, h))
}

// onUnanswered handles the end of a request to which no reply came.
func (f *Source) onUnanswered(e *flow.Env, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.OnUnanswered(e, p.currentLane())
	if ref.Kind == kindRequest {
		f.puts.ChargeConnLoss(&p.Row)
	}
	p.Conn = 0
	switch {
	case ref.Kind == kindRequest:
		f.retryOrFail(e, h, p, code, put.NoReplyReason(e, code))
	case p.IsDelivered():
		f.removePut(e, h, p)
	default:
		// A commit is idempotent, so the commit is repeated until the put's deadline.
		e.Out.Mark(Marks.CommitAgain)
		f.queueCommit(e, h, p)
	}
}

// retryOrFail sends the request again, or ends the put with a reason when all attempts are used up.
func (f *Source) retryOrFail(e *flow.Env, h table.Handle, p *putRow, code effects.Code, why effects.Why) {
	switch {
	case p.IsDelivered():
		// A grant that the lost reply may have named ends with its lease.
		f.removePut(e, h, p)
	case p.Failures < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.AskAgain)
		f.queuePut(e, h, p)
	default:
		p.SetReason(put.NoReplyCode(code), why)
		p.deliverOutcome(e, put.NoReplyCode(code))
		f.removePut(e, h, p)
	}
}

// onReplied handles a reply, and frees the place on the lane for the next request.
func (f *Source) onReplied(e *flow.Env, ref kernel.Ref, body []byte) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.OnReplied(e, p.currentLane())
	if ref.Kind == kindRequest {
		e.Breakers.CloseTrial(e.Now, p.PeerAddr)
		f.handleAllocReply(e, h, p, body)
		return
	}
	f.handleCommitReply(e, h, p, body)
}

// handleAllocReply handles the reply to an AllocRequest, which may grant pages, take the chunks, or refuse.
func (f *Source) handleAllocReply(e *flow.Env, h table.Handle, p *putRow, body []byte) {
	if !p.IsSamePeer(e) {
		// The link was lost while the reply was in the mailbox: the reply names an incarnation that this rank may
		// not be able to reach any more.
		e.Out.Mark(Marks.ReplyAfterLink)
		_, cause := e.Links.Outbound(p.Peer).State()
		why := effects.Why{}
		if w := e.Links.Outbound(p.Peer).FailureReason(); w != nil {
			why = *w
		}
		// The link is up again, to another incarnation. Nothing was sent, so this is no success.
		if cause == effects.OK {
			cause, why = effects.Stale, effects.Why{Field: "incarnation", Theirs: "different from that of the request"}
		}
		f.retryOrFail(e, h, p, cause, why)
		return
	}
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(put.Marks.ReplyMalformed)
		p.ReportMalformed(e, p.reportStage(), link.DecodeReason(err))
		f.failPut(e, h, p, effects.Malformed)
		return
	}
	if m.HasExt {
		p.Grant = effects.GrantID(m.Ext.Grant)
	}
	// The synchronous upstream form cannot express a refusal; the code in our extension can.
	if m.AllocFailed || m.HasExt && m.Ext.Code != 0 {
		f.handleRefusal(e, h, p)
		return
	}
	if m.HasExt && m.Ext.Taken > 0 {
		f.handleTaken(e, h, p)
		return
	}
	if p.IsDelivered() {
		e.Out.Mark(put.Marks.ReplyAfterOutcome)
		f.returnGrant(e, h, p)
		return
	}
	if !f.planPairs(e.Links.IncarnationOf(p.Peer), p) {
		f.failInvalidReply(e, h, p)
		return
	}
	if len(f.pairs) == 0 {
		e.Out.Mark(put.Marks.AllSkipped)
		p.deliverOutcome(e, effects.OK)
		f.removePut(e, h, p)
		return
	}
	f.startWrite(e, h, p)
}

func (f *Source) handleRefusal(e *flow.Env, h table.Handle, p *putRow) {
	code := effects.NoMemory
	if f.reply.HasExt && f.reply.Ext.Code != 0 {
		code = effects.CodeFromWire(f.reply.Ext.Code)
	}
	if code == effects.Stale {
		e.Out.Mark(put.Marks.AskedStale)
		e.Links.FailPeer(&e.Env, p.Peer, effects.Stale, put.AtStage(effects.StageAsk, put.PeerReason(f.reply.Ext.Reason)))
		if !p.IsDelivered() && p.Failures < e.Cfg.AttemptsMax {
			f.queuePut(e, h, p)
			return
		}
	}
	e.Out.Mark(put.Marks.AllocFailed)
	words := effects.SanitizeText(f.reply.Ext.Reason)
	p.SetReason(code, put.RefusalReason(words))
	p.NoRoom = true
	if !p.IsDelivered() {
		p.deliverOutcome(e, code)
	}
	// This precedes the giving back of a grant that arrived beside the refusal, because that lets the next put be
	// sent.
	if p.HandleRefusal(e, code, words) {
		f.stopBackedOff(e, p.Peer)
	}
	f.returnGrant(e, h, p)
}

// noLayersReason explains that the peer's pages hold whole chunks, or that the numbers of layers differ.
func noLayersReason(ours, theirs uint32) effects.Why {
	return effects.Why{
		Field: "kvf_layers", Ours: flow.FormatCount(ours), Theirs: flow.FormatCount(theirs),
		Remedy: "set use_layerwise: true at both ends",
	}
}

// failPut delivers the given code unless the put has an outcome already, and then gives the grant back.
func (f *Source) failPut(e *flow.Env, h table.Handle, p *putRow, code effects.Code) {
	if !p.IsDelivered() {
		p.deliverOutcome(e, code)
	}
	f.returnGrant(e, h, p)
}

// returnGrant ends the row and tells the receiver that the grant will not be used any more, so that the receiver
// need not wait for the end of the lease. A receiver without support for aborts is sent nothing and waits.
// Invariant: nothing of this rank stores under the grant any more (M1, M4).
func (f *Source) returnGrant(e *flow.Env, h table.Handle, p *putRow) {
	if p.Grant == 0 || !p.AcceptsFinal {
		f.removePut(e, h, p)
		return
	}
	p.abortGrant = true
	f.queueCommit(e, h, p)
}
