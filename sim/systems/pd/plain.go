package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A plainSender is a sender that speaks LMCache's protocol without our extensions. The sender shakes hands, requests
// pages, writes the pages with its own hardware and notifies the proxy, request by request. A plain sender has no
// incarnation and no lease, sends no commit and no done message. On a leased plane this is acceptable because of an
// assumption (rule M5): the writes land before the lease of the grant and the residual time (Residual) have passed. In
// the simulation the writes keep to this time, but possibly only just.
//
// A plain sender has no machine and is not a node: the simulation contains only the messages and the writes.
type plainSender struct {
	active        bool
	stage         plainStage
	pool          *world.Pool
	batch         int
	step          uint32 // number of messages sent; names the message in draws of faults
	pendingStores int    // number of stores of the batch that have not landed
}

// plainStage is the stage of the protocol that a plain sender has reached.
type plainStage uint8

// The stages of the protocol, in order.
const (
	plainHello plainStage = iota
	plainReady
	plainList
	plainAsk
	plainDone
	plainFailed
)

// PlainWrite is the write of a page by a plain sender.
type PlainWrite struct {
	job      int
	Pool     *world.Pool
	Grant    effects.GrantID
	Page     uint32
	key      uint32
	fill     uint32
	parts    int
	Finished bool
}

// messageSubject returns the name of the sender's newest message in draws.
func (s *plainSender) messageSubject(j *Job) plan.Subject {
	return plan.AboutCommand(j.requestNumber, plan.CommandPut, 1<<20+s.step)
}

// sendMessage sends a message, unless a fault loses it. The sender then waits forever, as real plain senders do.
func (s *plainSender) sendMessage(w *Cluster, j *Job, channel effects.Channel, body []byte) {
	r := w.Nodes[j.Receiver]
	s.step++
	w.Result.Messages++
	w.OverhearMessage(body)
	if !r.Up || w.IsStruck(plan.FaultRequestLost, s.messageSubject(j), 0) {
		return
	}
	w.Requests = append(w.Requests, world.Request{Node: r.ID, Incarnation: r.Incarnation, Channel: channel, VanillaJob: j.Index + 1,
		At: w.Now})
	id := uint64(len(w.Requests))
	d := draw.Hash(w.Seed, draw.Request, uint64(s.messageSubject(j)), 0)
	w.QueueForNode(r, d.HeavyTail(w.Conditions.MessageTime), world.Delivery{Kind: world.KindReceived, A: 1<<51 | uint64(j.Index),
		B: uint64(channel), C: id,
		Body: w.CopyBody(w.encoder.maybeRewrite(w, authorPlain, s.messageSubject(j), 0, body))})
}

// startHandshake sends the first message of the handshake.
func (s *plainSender) startHandshake(w *Cluster, j *Job) {
	m := protocol.HixlInitRequest{LocalID: []byte("plain:1"), EngineID: []byte("plain:1")}
	s.sendMessage(w, j, effects.ChannelInit, m.Append(nil))
}

// sendReply sends a reply back to a plain sender.
func (s *plainSender) sendReply(w *Cluster, j *Job, r *world.Request, body []byte) {
	name := s.messageSubject(j)
	if w.IsStruck(plan.FaultReplyLost, name, 0) {
		return
	}
	w.QueueAfter(draw.Hash(w.Seed, draw.Reply, uint64(name), 0).HeavyTail(w.Conditions.MessageTime),
		world.Delivery{Kind: world.KindVanillaReply, Node: plan.NoNode, A: uint64(j.Index), B: uint64(r.Grant),
			C:    uint64(s.step),
			Body: w.CopyBody(body)})
}

var (
	checkPlainReady  = oracle.NewCheck("L8", "replies to vanilla senders")
	checkPlainReply  = oracle.NewCheck("S10", "replies to vanilla senders")
	checkPlainLayout = oracle.NewCheck("S22", "replies to vanilla senders")
)

// handleReply handles a reply that has arrived, and continues with the next step.
func (s *plainSender) handleReply(w *Cluster, j *Job, d world.Delivery) {
	body := append([]byte(nil), d.Body...)
	w.RecycleBody(d.Body)
	var ready protocol.HixlReadyResponse
	switch s.stage {
	case plainHello:
		w.CountJudged(checkPlainReady, checkPlainLayout)
		var m protocol.HixlInitResponse
		if m.Decode(body, &WireLimits) != nil {
			if ready.Decode(body, &WireLimits) != nil || ready.OK || w.Conditions.Leased {
				w.FailCheck(checkPlainReady,
					"node %d replies to the handshake of a vanilla sender with a message that the sender cannot decode",
					oracle.Node(j.Receiver))
			}
			// No plane of ours can serve the sender. Some senders request pages nevertheless.
			s.stage = plainAsk
			s.requestPages(w, j)
			return
		}
		if m.HasExt || !w.Conditions.Leased {
			w.FailCheck(checkPlainLayout,
				"node %d completes a handshake with a vanilla sender although only fenced planes are open, or uses our extensions",
				oracle.Node(j.Receiver))
			return
		}
		s.stage = plainReady
		s.sendMessage(w, j, effects.ChannelInit, (&protocol.HixlReadyRequest{LocalID: []byte("plain:1")}).Append(nil))
	case plainReady:
		if ready.Decode(body, &WireLimits) != nil || !ready.OK {
			w.FailCheck(checkPlainReady, "node %d is not ready for a vanilla sender after a completed handshake", oracle.Node(j.Receiver))
			return
		}
		s.stage = plainList
		s.sendMessage(w, j, effects.ChannelInit, (&protocol.HixlMemInfoRequest{LocalID: []byte("plain:1")}).Append(nil))
	case plainList:
		var m protocol.HixlMemInfoResponse
		s.pool = nil
		if m.Decode(body, &WireLimits) == nil && len(m.Buffers) == 1 {
			s.pool = w.Buffers[effects.BufferID(m.Buffers[0].UUID)]
		}
		if s.pool == nil {
			w.Fail("S12", "node %d lists buffers of other nodes", oracle.Node(j.Receiver))
			return
		}
		s.stage = plainAsk
		s.requestPages(w, j)
	case plainAsk:
		if w.Nodes[j.Sender].OffersChunks {
			s.handleOfferReply(w, j, body)
			return
		}
		s.handleAllocReply(w, j, effects.GrantID(d.B), body)
	case plainDone, plainFailed:
	}
}

// requestPages requests the pages of the next batch. After the last batch, the sender notifies the proxy.
func (s *plainSender) requestPages(w *Cluster, j *Job) {
	if s.batch == len(j.Batches) {
		s.stage = plainDone
		w.QueueAfter(draw.Hash(w.Seed, draw.Post, uint64(j.requestNumber), 2).HeavyTail(w.Conditions.MessageTime),
			world.Delivery{Kind: world.KindProxyPost, Node: plan.NoNode, B: uint64(j.Index)})
		return
	}
	b := &j.Batches[s.batch]
	if w.Nodes[j.Sender].OffersChunks {
		s.offerBatch(w, j, b)
		return
	}
	layout := w.Setup.Rank.Layout
	m := protocol.AllocRequest{Keys: j.Keys[b.From:b.To], Format: layout.Format, Shape: layout.Shape,
		Dtype: layout.Dtype, LastChunkTokens: j.TokensOf(b.To - 1)}
	if f := w.Setup.Rank.ReplyForm; f == protocol.FormAsync1 || f == protocol.FormAsync2 {
		m.WithAsync, m.RequestID, m.IsLastBatch, m.TotalChunks = true, j.Name, s.batch+1 == len(j.Batches),
			uint32(len(j.Keys))
	}
	if b.To-b.From == 1 {
		if short, err := layout.WithTokens(m.LastChunkTokens); err == nil {
			m.Shape = short.Shape
		}
	}
	s.sendMessage(w, j, effects.ChannelAlloc, m.Append(nil))
}

// handleAllocReply decodes the reply to a page request as LMCache does, and writes the pages.
func (s *plainSender) handleAllocReply(w *Cluster, j *Job, id effects.GrantID, body []byte) {
	w.CountJudged(checkPlainReply)
	b := &j.Batches[s.batch]
	var m protocol.AllocResponse
	n := b.To - b.From
	if len(body) == 0 {
		s.stage = plainFailed // The sender's put raises an exception, and its proxy is not notified.
		return
	}
	switch err := m.Decode(body, &WireLimits); {
	case err != nil || m.HasExt:
		w.FailCheck(checkPlainReply, "node %d replies to a vanilla sender with a message that the sender cannot decode: %v",
			oracle.Node(j.Receiver), err)
		return
	case m.AllocFailed || len(m.RemoteIndexes)+len(m.AlreadySent) == 0:
		return // The sender gives up, as LMCache does.
	case len(m.RemoteIndexes)+len(m.AlreadySent) != n:
		w.FailCheck(checkPlainReply, "node %d replies to a vanilla sender with %d pages for %d keys",
			oracle.Node(j.Receiver), len(m.RemoteIndexes)+len(m.AlreadySent), n)
		return
	}
	sent := map[int64]bool{}
	for _, at := range m.AlreadySent {
		sent[at] = true
	}
	next := 0
	if w.Conditions.Leased && s.pool != nil {
		for k := range n {
			if sent[int64(k)] {
				continue
			}
			s.startStore(w, j, id, uint32(m.RemoteIndexes[next]), b.From+k)
			next++
		}
	}
	s.batch++
	if s.pendingStores == 0 {
		s.requestPages(w, j)
	}
}

// startStore passes one page to the sender's hardware. However late the hardware is, both halves of the page land
// within the time that rule M5 assumes.
func (s *plainSender) startStore(w *Cluster, j *Job, id effects.GrantID, page uint32, k int) {
	p := s.pool
	g := p.FindGrant(id)
	if !p.IsMapped() || g == nil {
		return // The old address does not lead to anybody's memory any more.
	}
	x := PlainWrite{job: j.Index, Pool: p, Grant: id, Page: page, key: j.KeyNumbers[k], fill: w.NewFill(),
		parts: int(j.TokensOf(k)) * world.Parts / tokensPerChunk}
	for o := range w.PlainWrites {
		if y := &w.PlainWrites[o]; y.Pool == p && y.Grant == id && y.Page == page {
			x.fill = y.fill // The key occurs twice in the batch, so the same chunk is stored twice.
		}
	}
	w.PlainWrites = append(w.PlainWrites, x)
	nth := uint64(len(w.PlainWrites) - 1)
	name := s.messageSubject(j)
	d := draw.Hash(w.Seed, draw.Store, uint64(name), uint64(k))
	late := d.HeavyTail(w.Conditions.DeviceTime)
	if x, ok := w.DrawStrike(plan.FaultLateStore, name, uint64(k)); ok {
		late += x.Duration(0, 5*effects.Second)
	}
	latest := p.Node.InstantOf(g.ExpiresAt.Add(w.Setup.Rank.Residual)) - 1
	first := min(w.Now+int64(late), latest)
	second := min(first+int64(d.Rehash().HeavyTail(w.Conditions.DeviceTime)), latest)
	if first < w.Now || g.Revoked {
		w.PlainWrites[nth].Finished = true
		return
	}
	s.pendingStores++
	p.Pages[page].Writers++
	p.UpdateInUse(page)
	w.Queue.Push(first, world.Delivery{Kind: world.KindVanillaStore, Node: plan.NoNode, A: nth, B: 0})
	w.Queue.Push(second, world.Delivery{Kind: world.KindVanillaStore, Node: plan.NoNode, A: nth, B: 1})
}

// performStore performs the store of one half of a page by a plain sender's hardware.
func (x *PlainWrite) performStore(w *Cluster, half int) {
	if !x.Finished && x.Pool.IsMapped() {
		OnPlainWriteStored.Report(&w.Panel, oracle.NoNode, PlainWriteStored{x, half})
		for part := half * world.Parts / 2; part < min((half+1)*world.Parts/2, x.parts); part++ {
			x.Pool.Pages[x.Page].Stamps[part] = world.MakeStamp(x.key, x.fill<<5, part)
		}
	}
	if half == 0 {
		return
	}
	OnPlainWriteEnded.Report(&w.Panel, oracle.NoNode, PlainWriteEnded{x})
	j := &w.Jobs[x.job]
	if j.plain.pendingStores--; j.plain.pendingStores == 0 && j.plain.stage == plainAsk {
		j.plain.requestPages(w, j)
	}
}
