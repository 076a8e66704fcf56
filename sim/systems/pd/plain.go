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
	is      bool
	stage   plainStage
	pool    *world.Pool
	batch   int
	step    uint32 // number of messages sent; names the message in draws of faults
	writing int    // number of stores of the batch that have not landed
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
	job   int
	Pool  *world.Pool
	Grant effects.GrantID
	Page  uint32
	key   uint32
	fill  uint32
	parts int
	Over  bool
}

// name returns the name of the sender's newest message in draws.
func (s *plainSender) name(j *Job) plan.Subject {
	return plan.AboutCommand(j.request, plan.WantPut, 1<<20+s.step)
}

// say sends a message, unless a fault loses it. The sender then waits forever, as real plain senders do.
func (s *plainSender) say(w *Cluster, j *Job, channel effects.Channel, body []byte) {
	r := w.Nodes[j.Receiver]
	s.step++
	w.Result.Messages++
	w.Overhear(body)
	if !r.Up || w.Struck(plan.FaultRequestLost, s.name(j), 0) {
		return
	}
	w.Requests = append(w.Requests, world.Request{Node: r.ID, Life: r.Life, Channel: channel, Plain: j.Place + 1,
		At: w.Now})
	id := uint64(len(w.Requests))
	d := draw.Hash(w.Seed, draw.Request, uint64(s.name(j)), 0)
	w.ForNode(r, d.Heavy(w.Setting.Net), world.Delivery{Kind: world.KindReceived, A: 1<<51 | uint64(j.Place),
		B: uint64(channel), C: id,
		Body: w.Body(w.encoders.once(w, scribePlain, s.name(j), 0, body))})
}

// start sends the first message of the handshake.
func (s *plainSender) start(w *Cluster, j *Job) {
	m := protocol.HixlInitRequest{LocalID: []byte("plain:1"), EngineID: []byte("plain:1")}
	s.say(w, j, effects.ChannelInit, m.Append(nil))
}

// reply sends a reply back to a plain sender.
func (s *plainSender) reply(w *Cluster, j *Job, r *world.Request, body []byte) {
	name := s.name(j)
	if w.Struck(plan.FaultReplyLost, name, 0) {
		return
	}
	w.After(draw.Hash(w.Seed, draw.Reply, uint64(name), 0).Heavy(w.Setting.Net),
		world.Delivery{Kind: world.KindPlain, Node: plan.Nobody, A: uint64(j.Place), B: uint64(r.Grant),
			C:    uint64(s.step),
			Body: w.Body(body)})
}

// heard handles a reply that has arrived, and continues with the next step.
func (s *plainSender) heard(w *Cluster, j *Job, d world.Delivery) {
	body := append([]byte(nil), d.Body...)
	w.Recycle(d.Body)
	var ready protocol.HixlReadyResponse
	switch s.stage {
	case plainHello:
		var m protocol.HixlInitResponse
		if m.Decode(body, &WireLimits) != nil {
			if ready.Decode(body, &WireLimits) != nil || ready.OK || w.Setting.Leased {
				w.Fail("L8", "node %d answers the handshake of a vanilla sender with what that cannot read",
					oracle.Node(j.Receiver))
			}
			// No plane of ours can serve the sender. Some senders request pages nevertheless.
			s.stage = plainAsk
			s.ask(w, j)
			return
		}
		if m.HasExt || !w.Setting.Leased {
			w.Fail("S22",
				"node %d shakes hands with a vanilla sender although only fenced planes are open, or in words that it cannot know",
				oracle.Node(j.Receiver))
			return
		}
		s.stage = plainReady
		s.say(w, j, effects.ChannelInit, (&protocol.HixlReadyRequest{LocalID: []byte("plain:1")}).Append(nil))
	case plainReady:
		if ready.Decode(body, &WireLimits) != nil || !ready.OK {
			w.Fail("L8", "node %d is not ready for a vanilla sender that it welcomed", oracle.Node(j.Receiver))
			return
		}
		s.stage = plainList
		s.say(w, j, effects.ChannelInit, (&protocol.HixlMemInfoRequest{LocalID: []byte("plain:1")}).Append(nil))
	case plainList:
		var m protocol.HixlMemInfoResponse
		s.pool = nil
		if m.Decode(body, &WireLimits) == nil && len(m.Buffers) == 1 {
			s.pool = w.Buffers[effects.BufferID(m.Buffers[0].UUID)]
		}
		if s.pool == nil {
			w.Fail("S12", "node %d lists other buffers than its own", oracle.Node(j.Receiver))
			return
		}
		s.stage = plainAsk
		s.ask(w, j)
	case plainAsk:
		if w.Nodes[j.Sender].Pulls {
			s.answered(w, j, body)
			return
		}
		s.granted(w, j, effects.GrantID(d.B), body)
	case plainDone, plainFailed:
	}
}

// ask requests the pages of the next batch. After the last batch, the sender notifies the proxy.
func (s *plainSender) ask(w *Cluster, j *Job) {
	if s.batch == len(j.Batches) {
		s.stage = plainDone
		w.After(draw.Hash(w.Seed, draw.Post, uint64(j.request), 2).Heavy(w.Setting.Net),
			world.Delivery{Kind: world.KindPosted, Node: plan.Nobody, B: uint64(j.Place)})
		return
	}
	b := &j.Batches[s.batch]
	if w.Nodes[j.Sender].Pulls {
		s.offer(w, j, b)
		return
	}
	layout := w.Plan.Rank.Layout
	m := protocol.AllocRequest{Keys: j.Keys[b.From:b.To], Format: layout.Format, Shape: layout.Shape,
		Dtype: layout.Dtype, LastChunkTokens: j.TokensOf(b.To - 1)}
	if f := w.Plan.Rank.ReplyForm; f == protocol.FormAsync1 || f == protocol.FormAsync2 {
		m.WithAsync, m.RequestID, m.IsLastBatch, m.TotalChunks = true, j.Name, s.batch+1 == len(j.Batches),
			uint32(len(j.Keys))
	}
	if b.To-b.From == 1 {
		if short, err := layout.WithTokens(m.LastChunkTokens); err == nil {
			m.Shape = short.Shape
		}
	}
	s.say(w, j, effects.ChannelAlloc, m.Append(nil))
}

// granted decodes the reply to a page request as LMCache does, and writes the pages.
func (s *plainSender) granted(w *Cluster, j *Job, id effects.GrantID, body []byte) {
	b := &j.Batches[s.batch]
	var m protocol.AllocResponse
	n := b.To - b.From
	if len(body) == 0 {
		s.stage = plainFailed // The sender's put raises an exception, and its proxy is not notified.
		return
	}
	switch err := m.Decode(body, &WireLimits); {
	case err != nil || m.HasExt:
		w.Fail("S10", "node %d answers a vanilla sender with what that cannot read: %v", oracle.Node(j.Receiver), err)
		return
	case m.AllocFailed || len(m.RemoteIndexes)+len(m.AlreadySent) == 0:
		return // The sender gives up, as LMCache does.
	case len(m.RemoteIndexes)+len(m.AlreadySent) != n:
		w.Fail("S10", "node %d answers a vanilla sender with %d pages for %d keys",
			oracle.Node(j.Receiver), len(m.RemoteIndexes)+len(m.AlreadySent), n)
		return
	}
	sent := map[int64]bool{}
	for _, at := range m.AlreadySent {
		sent[at] = true
	}
	next := 0
	if w.Setting.Leased && s.pool != nil {
		for k := range n {
			if sent[int64(k)] {
				continue
			}
			s.store(w, j, id, uint32(m.RemoteIndexes[next]), b.From+k)
			next++
		}
	}
	s.batch++
	if s.writing == 0 {
		s.ask(w, j)
	}
}

// store passes one page to the sender's hardware. However late the hardware is, both halves of the page land within
// the time that rule M5 assumes.
func (s *plainSender) store(w *Cluster, j *Job, id effects.GrantID, page uint32, k int) {
	p := s.pool
	g := p.Grant(id)
	if !p.Mapped() || g == nil {
		return // The old address does not lead to anybody's memory any more.
	}
	x := PlainWrite{job: j.Place, Pool: p, Grant: id, Page: page, key: j.Ids[k], fill: w.NewFill(),
		parts: int(j.TokensOf(k)) * world.Parts / tokensPerChunk}
	for o := range w.PlainWrites {
		if y := &w.PlainWrites[o]; y.Pool == p && y.Grant == id && y.Page == page {
			x.fill = y.fill // The key occurs twice in the batch, so the same chunk is stored twice.
		}
	}
	w.PlainWrites = append(w.PlainWrites, x)
	nth := uint64(len(w.PlainWrites) - 1)
	name := s.name(j)
	d := draw.Hash(w.Seed, draw.Store, uint64(name), uint64(k))
	late := d.Heavy(w.Setting.Device)
	if x, yes := w.Strikes(plan.FaultLateStore, name, uint64(k)); yes {
		late += x.Span(0, 5*effects.Second)
	}
	most := p.Node.When(g.Ends.Add(w.Plan.Rank.Residual)) - 1
	first := min(w.Now+int64(late), most)
	second := min(first+int64(d.Again().Heavy(w.Setting.Device)), most)
	if first < w.Now || g.Gone {
		w.PlainWrites[nth].Over = true
		return
	}
	s.writing++
	p.Pages[page].Writers++
	p.Touch(page)
	w.Queue.Push(first, world.Delivery{Kind: world.KindPlainStore, Node: plan.Nobody, A: nth, B: 0})
	w.Queue.Push(second, world.Delivery{Kind: world.KindPlainStore, Node: plan.Nobody, A: nth, B: 1})
}

// stored performs the store of one half of a page by a plain sender's hardware.
func (x *PlainWrite) stored(w *Cluster, half int) {
	if !x.Over && x.Pool.Mapped() {
		OnPlainStored.Report(&w.Panel, oracle.Nobody, PlainStored{x, half})
		for part := half * world.Parts / 2; part < min((half+1)*world.Parts/2, x.parts); part++ {
			x.Pool.Pages[x.Page].Stamps[part] = world.MakeStamp(x.key, x.fill<<5, part)
		}
	}
	if half == 0 {
		return
	}
	OnPlainStill.Report(&w.Panel, oracle.Nobody, PlainStill{x})
	j := &w.Jobs[x.job]
	if j.plain.writing--; j.plain.writing == 0 && j.plain.stage == plainAsk {
		j.plain.ask(w, j)
	}
}
