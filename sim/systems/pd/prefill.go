package pd

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Job is one request as the engines of both sides see it: a prefill pushes its chunks in batches, a decode gets them.
type Job struct {
	Name     []byte `snap:"share"`
	request  uint32 // its number
	Sender   int32
	Receiver int32
	Batches  []Batch
	Keys     [][]byte `snap:"share"`
	Ids      []uint32 `snap:"share"`
	early    bool
	PlainTo  bool
	plain    plainSender
	Whole    bool   // its puts are parts of one
	shared   bool   // whose pages are of one reserve
	Take     bool   // its reader takes pages where others fetch
	prefix   int    // its reader fetches so many chunks by themselves; 0: all
	gather   bool   // nobody sends it
	Recall   bool   // nobody sends it: its sender reads back what there is of it
	Find     bool   // with Share: directories are asked who has it
	Share    bool   // nobody sends it: its receiver has brought what its sender has of it
	probe    bool   // made after healing; it must succeed
	Life     uint32 // of the sender that works on it
	begun    bool
	Told     int                // notifications that the proxy was sent, of that life
	ToldAt   int64              `snap:"skip"` // the newest of those
	Puts     int                // open
	Given    [plan.Wants]uint32 `snap:"skip"` // commands, by what they are for
	failed   bool
	// When its request was abandoned last, and in which life of its reader. By the reader's clock, of which no stamp is
	// zero, so that zero is never: a run's own time begins at zero, and an engine may abandon a request at once.
	Abandoned   effects.Time `snap:"skip"`
	AbandonedIn uint32       `snap:"skip"`
	ok          bool         // every put ended OK
	served      bool         // its reader got all of it
}

type Batch struct {
	From, To int // of the job's keys
	Reserve  effects.Ticket
	Put      effects.Ticket
	tries    int
	Refilled bool   // its pages were used again after its put had failed
	full     bool   // of a whole job: it waits for the other parts
	back     bool   // of a reserve that is shared: its memory is the engine's
	Joined   bool   // its put was taken, and counts for its request
	Life     uint32 `snap:"skip"` // of the receiver when the put was given
}

// loadJobs queues the plan's workload.
func (w *Cluster) loadJobs(jobs []plan.Job) {
	w.Reader.Has = map[uint32]bool{}
	for i := range jobs {
		p := &jobs[i]
		j := w.NewJob(p.Request, int32(p.From), int32(p.To))
		j.early, j.plain.is, j.PlainTo = p.Early, p.Plain, p.PlainTo
		j.Take, j.prefix, j.gather, j.Whole, j.Recall = p.Take, p.Prefix, p.Gather, p.Whole, p.Recall
		j.Share, j.Find = p.Share, p.Find
		for _, k := range p.Keys {
			w.addKey(j, k)
		}
		if w.owner(j) != nil {
			w.cutBatches(j, len(j.Keys))
		} else {
			w.cutBatches(j, p.Batch)
			w.mayShare(j)
		}
		w.Queue.Push(int64(p.At), world.Delivery{Kind: world.KindStart, Node: plan.Nobody, A: uint64(i)})
	}
}

func (w *Cluster) NewJob(request uint32, from, to int32) *Job {
	j := w.addJob()
	j.Name = AppendNumber(append(j.Name, 'r'), int(request))
	j.request, j.Sender, j.Receiver = request, from, to
	return j
}

func AppendNumber(b []byte, n int) []byte {
	if n >= 10 {
		b = AppendNumber(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// JobNamed finds the job of a request; there are len(w.jobs) if there is none.
func (w *Cluster) JobNamed(name []byte) uint64 {
	// Drawn plans number requests by their place, so that is where to look first.
	place := 0
	for _, c := range name[min(1, len(name)):] {
		place = min(place*10+int(c-'0'), len(w.Jobs))
	}
	if place < len(w.Jobs) && bytes.Equal(w.Jobs[place].Name, name) {
		return uint64(place)
	}
	for i := range w.Jobs {
		if bytes.Equal(w.Jobs[i].Name, name) {
			return uint64(i)
		}
	}
	return uint64(len(w.Jobs))
}

func (w *Cluster) addKey(j *Job, id uint32) {
	k := protocol.Key{Model: "sim", WorldSize: 1, Hash: "0", Dtype: protocol.DtypeBFloat16}
	const digits = "0123456789abcdef"
	h := make([]byte, 0, 16)
	for v := uint64(id*2654435761) | 1<<32; v > 0; v >>= 4 {
		h = append(h, digits[v&15])
	}
	k.Hash = string(h)
	text := k.AppendTo(w.Stock.Bytes.Take(keyRoom)[:0])
	w.Keys[id] = text
	j.Keys = append(j.Keys, text)
	j.Ids = append(j.Ids, id)
}

// keyRoom is enough for the text of such a key.
const keyRoom = 32

// TokensOf says how long a chunk is: a key is of a full chunk, but for some that can only be a job's last.
func (j *Job) TokensOf(i int) uint32 {
	if id := j.Ids[i]; id >= plan.KeysOwn && i+1 == len(j.Ids) && (i == 0 || j.Ids[i-1] < id) {
		return 1 + id*7%tokensPerChunk
	}
	return tokensPerChunk
}

// Reader is who reads a job's chunks.
func (j *Job) Reader() int32 {
	if j.PlainTo {
		return plan.Outsider
	}
	return j.Receiver
}

func (w *Cluster) cutBatches(j *Job, size int) {
	for from := 0; from < len(j.Keys); from += size {
		j.Batches = append(j.Batches, Batch{From: from, To: min(from+size, len(j.Keys))})
	}
}

func (w *Cluster) startJob(i int) {
	j := &w.Jobs[i]
	n := w.Nodes[j.Sender]
	if flow := w.owner(j); flow != nil && flow.Start != nil {
		flow.Start(w, i)
		return
	}
	switch {
	case j.gather:
	case j.plain.is:
		w.plainStart(i)
	case n.Up && !j.begun:
		j.begun, j.Life = true, n.Life
		w.reserveFor(n, i, 0)
	}
	if r := w.Nodes[j.Receiver]; (j.early && !j.PlainTo || j.gather) && r.Up {
		w.ForNode(r, 0, world.Delivery{Kind: world.KindFetch, A: uint64(i)})
	}
}

func (w *Cluster) reserveFor(n *world.Node, i, b int) {
	j := &w.Jobs[i]
	count := uint32(j.Batches[b].To - j.Batches[b].From)
	if j.shared {
		count = uint32(len(j.Keys))
	}
	j.Batches[b].tries++
	t := w.Give(n, Command{Want: plan.WantReserve, Job: i, Batch: b, Count: count,
		Body: w.bodies.reserves.One(ops.Reserve{Count: count})}, Its(n).Cfg.ReserveTimeout)
	j.Batches[b].Reserve = t
	w.MaybeAbort(n, t)
	w.maybeWaiting(n, t)
}

// MaybeAbort draws whether the engine changes its mind.
func (w *Cluster) MaybeAbort(n *world.Node, t effects.Ticket) {
	if d, yes := w.Strikes(plan.FaultAbort, w.Commands[t-1].Name, 0); yes {
		w.ForNode(n, d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindAbort, A: uint64(t)})
	}
}

func (w *Cluster) GiveAbort(n *world.Node, t effects.Ticket) {
	if w.Commands[t-1].Want.OfSender() {
		w.Give(n, Command{Want: plan.WantAbort, Target: t, Body: &ops.Abort{Target: t}}, 0)
	} else {
		w.Give(n, Command{Want: plan.WantAbort, Target: t, Body: &ops.Abort{Target: t}}, 0)
	}
}

// reserved starts to fill the pages; the second half comes later.
func (w *Cluster) reserved(n *world.Node, e *effects.Deliver, c *Command) {
	j := &w.Jobs[c.Job]
	if e.Code != effects.OK {
		if j.Batches[c.Batch].tries < 3 && e.Code != effects.Draining {
			w.reserveAgain(n, c.Job, c.Batch)
		} else {
			j.failed = true
			w.letGoParts(n, j)
		}
		return
	}
	w.Jury.OnReserved(n, e, c)
	if w.Failure != nil {
		return
	}
	c.Pages = w.Stock.Spans.Keep(e.Pages)
	if flow := w.owner(j); flow != nil {
		flow.Begin(w, n, c)
		return
	}
	b := j.reserving(c.Batch)
	for i := range c.Pages {
		tokens := uint64(j.TokensOf(b.From + i)) // Only a job's last may be shorter, and that is a batch's last.
		c.Pages[i].Length = uint32(uint64(n.Pool.PageBytes) * tokens / tokensPerChunk)
	}
	w.fill(n, j, b, c, 0)
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 1)
	w.ForNode(n, d.Heavy(3*effects.Millisecond)+w.hoarded(c),
		world.Delivery{Kind: world.KindFilled, A: uint64(c.Job), B: uint64(c.Batch)})
}

func (w *Cluster) reserveAgain(n *world.Node, i, b int) {
	w.Jobs[i].Batches[b].Reserve = 0
	d := draw.Hash(w.Seed, draw.Engine, uint64(w.Jobs[i].request)<<8|uint64(b), 2)
	w.ForNode(n, d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindFilled, A: uint64(i), B: uint64(b)})
}

// fill writes half of the chunks' content.
func (w *Cluster) fill(n *world.Node, j *Job, b Batch, c *Command, half int) {
	if half == 0 {
		c.Count = w.NewFill()
	}
	for i, p := range c.Pages {
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			n.Engine().Pages[p.Index].Stamps[part] = world.MakeStamp(j.Ids[b.From+i], c.Count<<5|uint32(i), part)
		}
	}
}

// filled puts a batch, and goes on with the next.
func (w *Cluster) filled(i, bi int) {
	j := &w.Jobs[i]
	n := w.Nodes[j.Sender]
	b := &j.Batches[bi]
	if b.Reserve == 0 {
		w.reserveFor(n, i, bi)
		return
	}
	c := &w.Commands[b.Reserve-1]
	if c.Released {
		return // By mistake, before it knew what there was.
	}
	w.fill(n, j, j.reserving(bi), c, 1)
	last := bi+1 == len(j.Batches)
	switch {
	case j.shared:
		for k := range j.Batches {
			j.Batches[k].Reserve = b.Reserve
		}
		w.putParts(n, i)
		return
	case !j.Whole || b.Refilled:
		w.put(n, i, bi, 0, 0)
	case last:
		w.putParts(n, i)
	default:
		b.full = true
	}
	if !last && j.Batches[bi+1].tries == 0 {
		w.reserveFor(n, i, bi+1)
	}
}

// put gives a put for a batch, which may be the first part of several that follow, or one that follows.
func (w *Cluster) put(n *world.Node, i, bi int, follow uint32, first effects.Ticket) effects.Ticket {
	j := &w.Jobs[i]
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
	if b.Refilled { // The request was told of these chunks already, as missing.
		body.Request, body.Last = nil, false
	}
	j.Puts++
	b.Life = r.Life
	b.Put = w.Give(n, Command{Want: plan.WantPut, Job: i, Batch: bi, Body: body, Pages: pages}, Its(n).Cfg.PutTimeout)
	w.MaybeAbort(n, b.Put)
	w.maybeConflict(n, b.Put)
	return b.Put
}
