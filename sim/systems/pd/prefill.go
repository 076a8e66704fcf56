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
	Place     int    `snap:"share"` // index in Work.Jobs
	Name      []byte `snap:"share"`
	request   uint32 // number of the request in the plan
	Sender    int32
	Receiver  int32
	Batches   []Batch
	Keys      [][]byte `snap:"share"`
	Ids       []uint32 `snap:"share"`
	early     bool
	PlainTo   bool
	plain     plainSender
	Whole     bool      // the job's puts are the parts of a single call
	shared    bool      // all parts use the pages of a single reserve
	Take      bool      // the reader gets pages with a Get where readers normally fetch
	prefix    int       // the reader fetches this many first chunks separately; 0: all at once
	gather    bool      // no node sends the job; the reader requests chunks that other requests brought
	Said      plan.Said `snap:"share"` // words of the flows that the job belongs to
	Layers    int       // pages per chunk, with a key for each layer; 0: one page per chunk
	Together  int       // number of the sender's pages that make up one chunk; 0: a chunk is one page
	Chunks    []uint32  `snap:"share"` // with Layers: the plan's numbers of the chunks
	ChunkKeys [][]byte  `snap:"share"` // with Layers: the keys of the chunks
	probe     bool      // created after healing; must succeed
	Life      uint32    // incarnation of the sender that works on the job
	begun     bool
	Told      int                // number of notifications that this incarnation sent to the proxy
	ToldAt    int64              `snap:"skip"` // time of the newest notification
	Puts      int                // number of puts without an outcome
	Given     [plan.Wants]uint32 `snap:"skip"` // number of commands by kind
	failed    bool
	// Abandoned is the time at which the job's request was last abandoned, and AbandonedIn is the incarnation of its
	// reader at that time. The time is read from the reader's clock, which never shows zero, so zero means never: the
	// run's own time begins at zero, and an engine may abandon a request at once.
	Abandoned   effects.Time `snap:"skip"`
	AbandonedIn uint32       `snap:"skip"`
	ok          bool         // all puts ended with OK
	served      bool         // the reader received the whole job
}

// Batch is a range of a job's keys that is reserved and put together.
type Batch struct {
	From, To int // range of the job's keys
	Reserve  effects.Ticket
	Put      effects.Ticket
	tries    int
	Refilled bool   // the engine used the batch's pages again after its put had failed
	full     bool   // in a Whole job: the batch is filled and waits for the other parts
	back     bool   // with a shared reserve: the batch's memory belongs to the engine again
	Joined   bool   // the machine accepted the batch's put, which counts for its request
	Life     uint32 `snap:"skip"` // incarnation of the receiver when the put was given
}

// StartEngines queues the jobs of the plan.
func (w *Cluster) StartEngines() {
	jobs := w.Source.Jobs
	w.Reader.Has = map[uint32]bool{}
	for i := range jobs {
		p := &jobs[i]
		j := w.NewJob(p.Request, int32(p.From), int32(p.To))
		j.early, j.plain.is, j.PlainTo = p.Early, p.Plain, p.PlainTo
		j.Take, j.prefix, j.gather, j.Whole, j.Said = p.Take, p.Prefix, p.Gather, p.Whole, p.Said
		if flow := w.Flows.owner(j); flow != nil && flow.Layers != nil {
			if j.Together = flow.Layers.Together(w.Source, plan.Node(p.To)); j.Together == 0 {
				j.Layers = flow.Layers.PerChunk(w.Source)
			}
		}
		for _, k := range p.Keys {
			if j.Layers > 0 {
				j.addLayers(w, k)
			} else {
				j.addKey(w, k)
			}
		}
		if w.Flows.owner(j) != nil {
			j.cut(len(j.Keys))
		} else {
			j.cut(p.Batch)
			j.mayShare(w)
		}
		w.Queue.Push(int64(p.At), world.Delivery{Kind: world.KindStart, Node: plan.Nobody, A: uint64(i)})
	}
}

// AppendNumber appends the decimal digits of n, which must not be negative, to b.
func AppendNumber(b []byte, n int) []byte {
	if n >= 10 {
		b = AppendNumber(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// addKey adds the chunk with the given key number to the job.
func (j *Job) addKey(w *Cluster, id uint32) {
	j.Keys = append(j.Keys, w.Keys.make(id, &w.Stock.Bytes))
	j.Ids = append(j.Ids, id)
}

// addLayers adds the layers of a chunk to the job. Each layer has a key with a distinct number.
func (j *Job) addLayers(w *Cluster, id uint32) {
	if slices.Contains(j.Chunks, id) {
		return // The chunks of a request are distinct, because each key depends on all previous ones.
	}
	first := w.Plan.layered + id*uint32(j.Layers)
	chunk := w.Keys.spell(first, &w.Stock.Bytes)
	j.Chunks, j.ChunkKeys = append(j.Chunks, id), append(j.ChunkKeys, chunk)
	for layer := range uint32(j.Layers) {
		key := protocol.AppendLayerKey(w.Stock.Bytes.Take(len(keyText) + 4)[:0], chunk, layer)
		w.Keys[first+layer] = key
		j.Keys, j.Ids = append(j.Keys, key), append(j.Ids, first+layer)
	}
}

// PerChunk returns the number of keys of a chunk: a key for each layer if layers are transferred separately, otherwise
// a single key.
func (j *Job) PerChunk() int { return max(1, j.Layers) }

// After returns the index in the job's keys that follows the given number of chunks.
func (j *Job) After(chunks uint32) int { return int(chunks) * j.PerChunk() }

// asked returns the keys of the chunks that the job's reader requests.
func (j *Job) asked() [][]byte {
	if j.Layers > 0 {
		return j.ChunkKeys
	}
	return j.Keys
}

// TokensOf returns the number of tokens of the chunk at index i of the job's keys. A chunk is full, except some
// chunks that can only be the last of a job.
func (j *Job) TokensOf(i int) uint32 {
	if j.Layers > 0 {
		id := j.Chunks[i/j.Layers]
		if id >= plan.KeysOwn && i/j.Layers+1 == len(j.Chunks) && (len(j.Chunks) == 1 || j.Chunks[len(j.Chunks)-2] < id) {
			return 1 + id*7%tokensPerChunk
		}
		return tokensPerChunk
	}
	if id := j.Ids[i]; id >= plan.KeysOwn && i+1 == len(j.Ids) && (i == 0 || j.Ids[i-1] < id) {
		return 1 + id*7%tokensPerChunk
	}
	return tokensPerChunk
}

// Reader returns the node that reads the job's chunks.
func (j *Job) Reader() int32 {
	if j.PlainTo {
		return plan.Outsider
	}
	return j.Receiver
}

// cut divides the job's keys into batches of the given size.
func (j *Job) cut(size int) {
	for from := 0; from < len(j.Keys); from += size {
		j.Batches = append(j.Batches, Batch{From: from, To: min(from+size, len(j.Keys))})
	}
}

// start makes the sender's engine begin to work on the job.
func (j *Job) start(w *Cluster) {
	n := w.Nodes[j.Sender]
	flow := w.Flows.attaching(j)
	if flow == nil {
		flow = w.Flows.owner(j)
	}
	if flow != nil && flow.Start != nil {
		flow.Start(w, j)
		return
	}
	switch {
	case j.gather:
	case j.plain.is:
		j.plain.start(w, j)
	case n.Up && !j.begun:
		j.begun, j.Life = true, n.Life
		j.reserve(w, n, 0)
	}
	if r := w.Nodes[j.Receiver]; (j.early && !j.PlainTo || j.gather) && r.Up {
		w.ForNode(r, 0, world.Delivery{Kind: world.KindFetch, A: uint64(j.Place)})
	}
}

// reserve gives the Reserve for the pages of batch b.
func (j *Job) reserve(w *Cluster, n *world.Node, b int) {
	count := uint32(j.Batches[b].To - j.Batches[b].From)
	if j.shared {
		count = uint32(len(j.Keys))
	}
	count *= uint32(max(1, j.Together))
	j.Batches[b].tries++
	t := w.Give(n, Command{Want: plan.WantReserve, Job: j.Place, Batch: b, Count: count,
		Body: w.bodies.reserves.One(ops.Reserve{Count: count})}, Its(n).Cfg.ReserveTimeout)
	j.Batches[b].Reserve = t
	w.MaybeAbort(n, t)
	w.Commands[t-1].maybeWaiting(w, n, t)
}

// MaybeAbort draws whether the engine aborts the command t.
func (w *Cluster) MaybeAbort(n *world.Node, t effects.Ticket) {
	if d, yes := w.Strikes(plan.FaultAbort, w.Commands[t-1].Name, 0); yes {
		w.ForNode(n, d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindAbort, A: uint64(t)})
	}
}

// GiveAbort gives an Abort for the command t to n's machine.
func (w *Cluster) GiveAbort(n *world.Node, t effects.Ticket) {
	w.Give(n, Command{Want: plan.WantAbort, Target: t, Body: &ops.Abort{Target: t}}, 0)
}

// reserved handles the outcome of a Reserve. The engine begins to fill the pages, and writes the second half later.
func (c *Command) reserved(w *Cluster, n *world.Node, e *effects.Deliver) {
	j := &w.Jobs[c.Job]
	if c.Attached {
		if e.Code == effects.OK {
			OnReserved.Report(&w.Panel, n.ID, Reserved{n, e, c})
			c.Pages = w.Stock.Spans.Keep(e.Pages)
		}
		return
	}
	if e.Code != effects.OK {
		if j.Batches[c.Batch].tries < 3 && e.Code != effects.Draining {
			j.reserveAgain(w, n, c.Batch)
		} else {
			j.failed = true
			j.letGoParts(w, n)
		}
		return
	}
	OnReserved.Report(&w.Panel, n.ID, Reserved{n, e, c})
	if w.Failure != nil {
		return
	}
	c.Pages = w.Stock.Spans.Keep(e.Pages)
	if flow := w.Flows.owner(j); flow != nil {
		flow.Begin(w, n, c)
		return
	}
	b := j.reserving(c.Batch)
	for i := range c.Pages {
		// Only the last chunk of a job can be shorter, and it is the last of its batch.
		tokens := uint64(j.TokensOf(b.From + i))
		c.Pages[i].Length = uint32(uint64(n.Pool.PageBytes) * tokens / tokensPerChunk)
	}
	c.fill(w, n, b, 0)
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 1)
	w.ForNode(n, d.Heavy(3*effects.Millisecond)+c.hoarded(w),
		world.Delivery{Kind: world.KindFilled, A: uint64(c.Job), B: uint64(c.Batch)})
}

// reserveAgain schedules another Reserve for batch b after a drawn delay.
func (j *Job) reserveAgain(w *Cluster, n *world.Node, b int) {
	j.Batches[b].Reserve = 0
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.request)<<8|uint64(b), 2)
	w.ForNode(n, d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindFilled, A: uint64(j.Place), B: uint64(b)})
}

// fill writes one half of the content of the chunks.
func (c *Command) fill(w *Cluster, n *world.Node, b Batch, half int) {
	j := &w.Jobs[c.Job]
	if half == 0 {
		c.Count = w.NewFill()
	}
	for i, p := range c.Pages {
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			n.Pool.Pages[p.Index].Stamps[part] = world.MakeStamp(j.Ids[b.From+i], c.Count<<5|uint32(i), part)
		}
	}
}

// filled gives the put of a batch after all its pages are filled, and begins with the next batch.
func (j *Job) filled(w *Cluster, bi int) {
	n := w.Nodes[j.Sender]
	b := &j.Batches[bi]
	if b.Reserve == 0 {
		j.reserve(w, n, bi)
		return
	}
	c := &w.Commands[b.Reserve-1]
	if c.Released {
		return // The engine released the pages by mistake, before the outcome arrived.
	}
	c.fill(w, n, j.reserving(bi), 1)
	last := bi+1 == len(j.Batches)
	switch {
	case j.shared:
		for k := range j.Batches {
			j.Batches[k].Reserve = b.Reserve
		}
		j.putParts(w, n)
		return
	case !j.Whole || b.Refilled:
		j.put(w, n, bi, 0, 0)
	case last:
		j.putParts(w, n)
	default:
		b.full = true
	}
	if !last && j.Batches[bi+1].tries == 0 {
		j.reserve(w, n, bi+1)
	}
}

// put gives the put of a batch. In a call of several parts, the first part has the number of the following parts in
// follow, and each following part has the ticket of the first part in first.
func (j *Job) put(w *Cluster, n *world.Node, bi int, follow uint32, first effects.Ticket) effects.Ticket {
	b := &j.Batches[bi]
	pages := w.Commands[b.Reserve-1].Pages
	if j.shared {
		pages = pages[b.From:b.To:b.To]
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	to := ops.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	if j.PlainTo {
		to = ops.Peer{Host: world.OutsiderHost, InitPort: 1, AllocPort: 2}
	}
	body := w.bodies.puts.One(ops.Put{
		Peer:    to,
		Request: j.Name, Keys: j.Keys[b.From:b.To], Pages: pages, Layout: Its(n).Cfg.Layout,
		LastChunkTokens: j.TokensOf(b.To - 1), Last: bi+1 == len(j.Batches), Follow: follow, First: first,
	})
	if b.Refilled { // The request has already counted these chunks as missing.
		body.Request, body.Last = nil, false
	}
	j.Puts++
	b.Life = r.Life
	b.Put = w.Give(n, Command{Want: plan.WantPut, Job: j.Place, Batch: bi, Body: body, Pages: pages},
		Its(n).Cfg.PutTimeout)
	w.MaybeAbort(n, b.Put)
	w.Commands[b.Put-1].maybeConflict(w, n, b.Put)
	w.Flows.put(w, n, b.Put, false)
	return b.Put
}
