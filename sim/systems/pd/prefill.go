package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Job is a request from the point of view of the engines of both sides: a prefill engine pushes the request's chunks in
// batches, and a decode engine gets the chunks.
type Job struct {
	Index               int    `snap:"share"` // index in Work.Jobs
	Name                []byte `snap:"share"`
	requestNumber       uint32 // number of the request in the plan
	Sender              int32
	Receiver            int32
	Batches             []Batch
	Keys                [][]byte `snap:"share"`
	KeyNumbers          []uint32 `snap:"share"`
	early               bool
	PlainTo             bool
	plain               plainSender
	Whole               bool           // the job's puts are the parts of a single call
	sharesReserve       bool           // all parts use the pages of a single reserve
	Take                bool           // the reader gets pages with a Get where readers normally fetch
	prefix              int            // the reader fetches this many first chunks separately; 0: all at once
	gather              bool           // no node sends the job; the reader requests chunks that other requests brought
	Flags               plan.FlowFlags `snap:"share"` // flags of the flows that the job belongs to
	Layers              int            // pages per chunk, with a key for each layer; 0: one page per chunk
	SenderPagesPerChunk int            // number of the sender's pages that make up one chunk; 0: a chunk is one page
	ChunkNumbers        []uint32       `snap:"share"` // with Layers: the plan's numbers of the chunks
	ChunkKeys           [][]byte       `snap:"share"` // with Layers: the keys of the chunks
	probe               bool           // created after healing; must succeed
	SenderIncarnation   uint32         // incarnation of the sender that works on the job
	started             bool
	Notifications       int                           // number of notifications that this incarnation sent to the proxy
	NotifiedAt          int64                         `snap:"skip"` // time of the newest notification
	OpenPuts            int                           // number of puts without an outcome
	CommandCounts       [plan.CommandKindLimit]uint32 `snap:"skip"` // number of commands by kind
	failed              bool
	// AbandonedAt is the time at which the job's request was last abandoned, and AbandonedIn is the incarnation of its
	// reader at that time. The time is read from the reader's clock, which never shows zero, so zero means never: the
	// run's own time begins at zero, and an engine may abandon a request at once.
	AbandonedAt effects.Time `snap:"skip"`
	AbandonedIn uint32       `snap:"skip"`
	allPutsOK   bool         // all puts ended with OK
	served      bool         // the reader received the whole job
}

// Batch is a range of a job's keys that is reserved and put together.
type Batch struct {
	From, To            int // range of the job's keys
	Reserve             effects.Ticket
	Put                 effects.Ticket
	attempts            int
	Refilled            bool   // the engine used the batch's pages again after its put had failed
	filled              bool   // in a Whole job: the batch is filled and waits for the other parts
	memoryReturned      bool   // with a shared reserve: the batch's memory belongs to the engine again
	Accepted            bool   // the machine accepted the batch's put, which counts for its request
	ReceiverIncarnation uint32 `snap:"skip"` // incarnation of the receiver when the put was given
}

// StartEngines queues the jobs of the plan.
func (w *Cluster) StartEngines() {
	jobs := w.SourcePlan.Jobs
	w.PlainReader.ReadKeys = map[uint32]bool{}
	for i := range jobs {
		p := &jobs[i]
		j := w.NewJob(p.Request, int32(p.From), int32(p.To))
		j.early, j.plain.active, j.PlainTo = p.Early, p.Plain, p.PlainTo
		j.Take, j.prefix, j.gather, j.Whole, j.Flags = p.Take, p.Prefix, p.Gather, p.Whole, p.Flags
		if flow := w.Flows.ownerOf(j); flow != nil && flow.Layers != nil {
			if j.SenderPagesPerChunk = flow.Layers.SenderPagesPerChunk(w.SourcePlan, plan.Node(p.To)); j.SenderPagesPerChunk == 0 {
				j.Layers = flow.Layers.PagesPerChunk(w.SourcePlan)
			}
		}
		for _, k := range p.Keys {
			if j.Layers > 0 {
				j.addLayers(w, k)
			} else {
				j.addKey(w, k)
			}
		}
		if w.Flows.ownerOf(j) != nil {
			j.cutBatches(len(j.Keys))
		} else {
			j.cutBatches(p.Batch)
			j.maybeShareReserve(w)
		}
		w.Queue.Push(int64(p.At), world.Delivery{Kind: world.KindStartJob, Node: plan.NoNode, A: uint64(i)})
	}
}

// AppendNumber appends the decimal digits of n, which must not be negative, to b.
func AppendNumber(b []byte, n int) []byte {
	if n >= 10 {
		b = AppendNumber(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// tenantOfKey returns the tenant of the key with a number in the plan.
func (w *Cluster) tenantOfKey(id uint32) effects.Tenant {
	return world.TenantOf(w.SourcePlan.Topology.KeyTenants[id])
}

// addKey adds the chunk with the given key number to the job.
func (j *Job) addKey(w *Cluster, id uint32) {
	j.Keys = append(j.Keys, w.Keys.keyOf(id, w.tenantOfKey(id), &w.Arenas.Bytes))
	j.KeyNumbers = append(j.KeyNumbers, id)
}

// addLayers adds the layers of a chunk to the job. Each layer has a key with a distinct number.
func (j *Job) addLayers(w *Cluster, id uint32) {
	if slices.Contains(j.ChunkNumbers, id) {
		return // The chunks of a request are distinct, because each key depends on all previous ones.
	}
	first := w.Setup.firstLayerKey + id*uint32(j.Layers)
	chunk := w.Keys.spellKey(first, w.tenantOfKey(id), &w.Arenas.Bytes)
	j.ChunkNumbers, j.ChunkKeys = append(j.ChunkNumbers, id), append(j.ChunkKeys, chunk)
	for layer := range uint32(j.Layers) {
		key := protocol.AppendLayerKey(w.Arenas.Bytes.Alloc(len(chunk) + 4)[:0], chunk, layer)
		w.Keys[first+layer] = key
		j.Keys, j.KeyNumbers = append(j.Keys, key), append(j.KeyNumbers, first+layer)
	}
}

// KeysPerChunk returns the number of keys of a chunk: a key for each layer if layers are transferred separately,
// otherwise a single key.
func (j *Job) KeysPerChunk() int { return max(1, j.Layers) }

// KeysIn returns the index in the job's keys that follows the given number of chunks.
func (j *Job) KeysIn(chunks uint32) int { return int(chunks) * j.KeysPerChunk() }

// requestedKeys returns the keys of the chunks that the job's reader requests.
func (j *Job) requestedKeys() [][]byte {
	if j.Layers > 0 {
		return j.ChunkKeys
	}
	return j.Keys
}

// TokensOf returns the number of tokens of the chunk at index i of the job's keys. A chunk is full, except some
// chunks that can only be the last of a job.
func (j *Job) TokensOf(i int) uint32 {
	if j.Layers > 0 {
		id := j.ChunkNumbers[i/j.Layers]
		if id >= plan.FirstUnsharedKey && i/j.Layers+1 == len(j.ChunkNumbers) && (len(j.ChunkNumbers) == 1 ||
			j.ChunkNumbers[len(j.ChunkNumbers)-2] < id) {
			return 1 + id*7%tokensPerChunk
		}
		return tokensPerChunk
	}
	if id := j.KeyNumbers[i]; id >= plan.FirstUnsharedKey && i+1 == len(j.KeyNumbers) && (i == 0 || j.KeyNumbers[i-1] < id) {
		return 1 + id*7%tokensPerChunk
	}
	return tokensPerChunk
}

// ReaderNode returns the node that reads the job's chunks.
func (j *Job) ReaderNode() int32 {
	if j.PlainTo {
		return plan.Outsider
	}
	return j.Receiver
}

// cutBatches divides the job's keys into batches of the given size.
func (j *Job) cutBatches(size int) {
	for from := 0; from < len(j.Keys); from += size {
		j.Batches = append(j.Batches, Batch{From: from, To: min(from+size, len(j.Keys))})
	}
}

// startWork makes the sender's engine begin to work on the job.
func (j *Job) startWork(w *Cluster) {
	n := w.Nodes[j.Sender]
	flow := w.Flows.processFlowOf(j)
	if flow == nil {
		flow = w.Flows.ownerOf(j)
	}
	if flow != nil && flow.StartJob != nil {
		flow.StartJob(w, j)
		return
	}
	switch {
	case j.gather:
	case j.plain.active:
		j.plain.startHandshake(w, j)
	case n.Up && !j.started:
		j.started, j.SenderIncarnation = true, n.Incarnation
		j.maybeChangeShare(w)
		j.reserveBatch(w, n, 0)
	}
	if r := w.Nodes[j.Receiver]; (j.early && !j.PlainTo || j.gather) && r.Up {
		w.QueueForNode(r, 0, world.Delivery{Kind: world.KindFetchJob, A: uint64(j.Index)})
	}
}

// reserveBatch gives the Reserve for the pages of batch b.
func (j *Job) reserveBatch(w *Cluster, n *world.Node, b int) {
	count := uint32(j.Batches[b].To - j.Batches[b].From)
	if j.sharesReserve {
		count = uint32(len(j.Keys))
	}
	count *= uint32(max(1, j.SenderPagesPerChunk))
	j.Batches[b].attempts++
	t := w.GiveCommand(n, Command{Kind: plan.CommandReserve, Job: j.Index, Batch: b, Count: count,
		Body: w.bodies.reserves.AllocCopy(ops.Reserve{Count: count, Tenant: j.tenant(w)})}, InfoOf(n).Cfg.ReserveTimeout)
	j.Batches[b].Reserve = t
	w.MaybeAbort(n, t)
	w.Commands[t-1].maybeReleaseEarly(w, n, t)
}

// tenant returns the tenant of the job's chunks.
func (j *Job) tenant(w *Cluster) effects.Tenant {
	if len(j.KeyNumbers) == 0 {
		return 0
	}
	return effects.Tenant(protocol.TenantOf(j.Keys[0]))
}

// MaybeAbort draws whether the engine aborts the command t.
func (w *Cluster) MaybeAbort(n *world.Node, t effects.Ticket) {
	if d, ok := w.DrawStrike(plan.FaultCommandAborted, w.Commands[t-1].Name, 0); ok {
		w.QueueForNode(n, d.HeavyTail(20*effects.Millisecond), world.Delivery{Kind: world.KindAbortCommand, A: uint64(t)})
	}
}

// AbortCommand gives an Abort for the command t to n's machine.
func (w *Cluster) AbortCommand(n *world.Node, t effects.Ticket) {
	w.GiveCommand(n, Command{Kind: plan.CommandAbort, Target: t, Body: &ops.Abort{Target: t}}, 0)
}

// handleReserveOutcome handles the outcome of a Reserve. The engine begins to fill the pages, and writes the second
// half later.
func (c *Command) handleReserveOutcome(w *Cluster, n *world.Node, e *effects.Deliver) {
	j := &w.Jobs[c.Job]
	if c.Attached {
		if e.Code == effects.OK {
			OnReserveOutcome.Report(&w.Panel, n.ID, ReserveOutcome{n, e, c})
			c.Pages = w.Arenas.EffectPages.CopySlice(e.Pages)
		}
		return
	}
	if e.Code != effects.OK {
		if j.Batches[c.Batch].attempts < 3 && e.Code != effects.Draining {
			j.retryReserve(w, n, c.Batch)
		} else {
			j.failed = true
			j.releaseParts(w, n)
		}
		return
	}
	OnReserveOutcome.Report(&w.Panel, n.ID, ReserveOutcome{n, e, c})
	if w.Failure != nil {
		return
	}
	c.Pages = w.Arenas.EffectPages.CopySlice(e.Pages)
	if flow := w.Flows.ownerOf(j); flow != nil {
		flow.BeginJob(w, n, c)
		return
	}
	b := j.reservedRange(c.Batch)
	for i := range c.Pages {
		// Only the last chunk of a job can be shorter, and it is the last of its batch.
		tokens := uint64(j.TokensOf(b.From + i))
		c.Pages[i].Length = uint32(uint64(n.Pool.PageBytes) * tokens / tokensPerChunk)
	}
	c.fillPages(w, n, b, 0)
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 1)
	w.QueueForNode(n, d.HeavyTail(3*effects.Millisecond)+c.hoardTime(w),
		world.Delivery{Kind: world.KindPagesFilled, A: uint64(c.Job), B: uint64(c.Batch)})
}

// retryReserve schedules another Reserve for batch b after a drawn delay.
func (j *Job) retryReserve(w *Cluster, n *world.Node, b int) {
	j.Batches[b].Reserve = 0
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber)<<8|uint64(b), 2)
	w.QueueForNode(n, d.HeavyTail(20*effects.Millisecond), world.Delivery{Kind: world.KindPagesFilled, A: uint64(j.Index), B: uint64(b)})
}

// fillPages writes one half of the content of the chunks.
func (c *Command) fillPages(w *Cluster, n *world.Node, b Batch, half int) {
	j := &w.Jobs[c.Job]
	if half == 0 {
		c.Count = w.NewFill()
	}
	for i, p := range c.Pages {
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			n.Pool.Pages[p.Index].Stamps[part] = world.MakeStamp(j.KeyNumbers[b.From+i], c.Count<<5|uint32(i), part)
		}
	}
}

// continueBatch gives the put of a batch after all its pages are filled, and begins with the next batch.
func (j *Job) continueBatch(w *Cluster, bi int) {
	n := w.Nodes[j.Sender]
	b := &j.Batches[bi]
	if b.Reserve == 0 {
		j.reserveBatch(w, n, bi)
		return
	}
	c := &w.Commands[b.Reserve-1]
	if c.Released {
		return // The engine released the pages by mistake, before the outcome arrived.
	}
	c.fillPages(w, n, j.reservedRange(bi), 1)
	last := bi+1 == len(j.Batches)
	switch {
	case j.sharesReserve:
		for k := range j.Batches {
			j.Batches[k].Reserve = b.Reserve
		}
		j.putParts(w, n)
		return
	case !j.Whole || b.Refilled:
		j.putBatch(w, n, bi, 0, 0)
	case last:
		j.putParts(w, n)
	default:
		b.filled = true
	}
	if !last && j.Batches[bi+1].attempts == 0 {
		j.reserveBatch(w, n, bi+1)
	}
}

// putBatch gives the put of a batch. In a call of several parts, the first part has the number of the following parts
// in follow, and each following part has the ticket of the first part in first.
func (j *Job) putBatch(w *Cluster, n *world.Node, bi int, follow uint32, first effects.Ticket) effects.Ticket {
	b := &j.Batches[bi]
	pages := w.Commands[b.Reserve-1].Pages
	if j.sharesReserve {
		pages = pages[b.From:b.To:b.To]
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	to := ops.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	if j.PlainTo {
		to = ops.Peer{Host: world.OutsiderHost, InitPort: 1, AllocPort: 2}
	}
	body := w.bodies.puts.AllocCopy(ops.Put{
		Peer:    to,
		Request: j.Name, Keys: j.Keys[b.From:b.To], Pages: pages, Layout: InfoOf(n).Cfg.Layout,
		LastChunkTokens: j.TokensOf(b.To - 1), Last: bi+1 == len(j.Batches), Follow: follow, First: first,
	})
	if b.Refilled { // The request has already counted these chunks as missing.
		body.Request, body.Last = nil, false
	}
	j.OpenPuts++
	b.ReceiverIncarnation = r.Incarnation
	b.Put = w.GiveCommand(n, Command{Kind: plan.CommandPut, Job: j.Index, Batch: bi, Body: body, Pages: pages},
		InfoOf(n).Cfg.PutTimeout)
	w.MaybeAbort(n, b.Put)
	w.Commands[b.Put-1].maybeConflict(w, n, b.Put)
	w.Flows.notifyPut(w, n, b.Put, false)
	return b.Put
}
