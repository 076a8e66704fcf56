package sim

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// job is one request as the engines of both sides see it: a prefill pushes its chunks
// in batches, a decode gets them.
type job struct {
	name     []byte `snap:"share"`
	request  uint32 // its number
	sender   int32
	receiver int32
	batches  []batch
	keys     [][]byte `snap:"share"`
	ids      []uint32 `snap:"share"`
	early    bool
	plainTo  bool
	plain    plainSender
	whole    bool   // its puts are parts of one
	take     bool   // its reader takes pages where others fetch
	prefix   int    // its reader fetches so many chunks by themselves; 0: all
	gather   bool   // nobody sends it
	recall   bool   // nobody sends it: its sender reads back what there is of it
	probe    bool   // made after healing; it must succeed
	life     uint32 // of the sender that works on it
	begun    bool
	told     int                // notifications that the proxy was sent, of that life
	toldAt   int64              `snap:"skip"` // the newest of those
	puts     int                // open
	given    [plan.Wants]uint32 `snap:"skip"` // commands, by what they are for
	failed   bool
	// When its request was abandoned last, and in which life of its reader.
	abandoned   int64  `snap:"skip"`
	abandonedIn uint32 `snap:"skip"`
	ok          bool   // every put ended OK
	served      bool   // its reader got all of it
}

type batch struct {
	from, to int // of the job's keys
	reserve  effects.Ticket
	put      effects.Ticket
	tries    int
	refilled bool   // its pages were used again after its put had failed
	full     bool   // of a whole job: it waits for the other parts
	joined   bool   // its put was taken, and counts for its request
	life     uint32 `snap:"skip"` // of the receiver when the put was given
}

// loadJobs queues the plan's workload.
func (w *cluster) loadJobs(jobs []plan.Job) {
	w.reader.has = map[uint32]bool{}
	for i := range jobs {
		p := &jobs[i]
		j := w.newJob(p.Request, int32(p.From), int32(p.To))
		j.early, j.plain.is, j.plainTo = p.Early, p.Plain, p.PlainTo
		j.take, j.prefix, j.gather, j.whole, j.recall = p.Take, p.Prefix, p.Gather, p.Whole, p.Recall
		for _, k := range p.Keys {
			w.addKey(j, k)
		}
		if j.recall {
			w.cutBatches(j, len(j.keys))
		} else {
			w.cutBatches(j, p.Batch)
		}
		w.Queue.Push(int64(p.At), world.Delivery{Kind: world.KindStart, Node: plan.Nobody, A: uint64(i)})
	}
}

func (w *cluster) newJob(request uint32, from, to int32) *job {
	j := w.addJob()
	j.name = appendNumber(append(j.name, 'r'), int(request))
	j.request, j.sender, j.receiver = request, from, to
	return j
}

func appendNumber(b []byte, n int) []byte {
	if n >= 10 {
		b = appendNumber(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// jobNamed finds the job of a request; there are len(w.jobs) if there is none.
func (w *cluster) jobNamed(name []byte) uint64 {
	// Drawn plans number requests by their place, so that is where to look first.
	place := 0
	for _, c := range name[min(1, len(name)):] {
		place = min(place*10+int(c-'0'), len(w.jobs))
	}
	if place < len(w.jobs) && bytes.Equal(w.jobs[place].name, name) {
		return uint64(place)
	}
	for i := range w.jobs {
		if bytes.Equal(w.jobs[i].name, name) {
			return uint64(i)
		}
	}
	return uint64(len(w.jobs))
}

func (w *cluster) addKey(j *job, id uint32) {
	k := protocol.Key{Model: "sim", WorldSize: 1, Hash: "0", Dtype: protocol.DtypeBFloat16}
	const digits = "0123456789abcdef"
	h := make([]byte, 0, 16)
	for v := uint64(id*2654435761) | 1<<32; v > 0; v >>= 4 {
		h = append(h, digits[v&15])
	}
	k.Hash = string(h)
	text := k.AppendTo(w.Stock.Bytes.Take(keyRoom)[:0])
	w.oracles.truth.keys[id] = text
	j.keys = append(j.keys, text)
	j.ids = append(j.ids, id)
}

// keyRoom is enough for the text of such a key.
const keyRoom = 32

// tokensOf says how long a chunk is: a key is of a full chunk, but for some that can
// only be a job's last.
func (j *job) tokensOf(i int) uint32 {
	if id := j.ids[i]; id >= plan.KeysOwn && i+1 == len(j.ids) && (i == 0 || j.ids[i-1] < id) {
		return 1 + id*7%tokensPerChunk
	}
	return tokensPerChunk
}

// reader is who reads a job's chunks.
func (j *job) reader() int32 {
	if j.plainTo {
		return plan.Outsider
	}
	return j.receiver
}

func (w *cluster) cutBatches(j *job, size int) {
	for from := 0; from < len(j.keys); from += size {
		j.batches = append(j.batches, batch{from: from, to: min(from+size, len(j.keys))})
	}
}

func (w *cluster) startJob(i int) {
	j := &w.jobs[i]
	n := w.Nodes[j.sender]
	switch {
	case j.gather:
	case j.plain.is:
		w.plainStart(i)
	case n.Up && !j.begun:
		j.begun, j.life = true, n.Life
		w.reserveFor(n, i, 0)
	}
	if r := w.Nodes[j.receiver]; (j.early && !j.plainTo || j.gather) && r.Up {
		w.ForNode(r, 0, world.Delivery{Kind: world.KindFetch, A: uint64(i)})
	}
}

func (w *cluster) reserveFor(n *world.Node, i, b int) {
	j := &w.jobs[i]
	count := uint32(j.batches[b].to - j.batches[b].from)
	j.batches[b].tries++
	t := w.give(n, command{want: plan.WantReserve, job: i, batch: b, count: count,
		body: w.bodies.reserves.One(ops.Reserve{Count: count})}, its(n).cfg.ReserveTimeout)
	j.batches[b].reserve = t
	w.maybeAbort(n, t)
}

// maybeAbort draws whether the engine changes its mind.
func (w *cluster) maybeAbort(n *world.Node, t effects.Ticket) {
	if d, yes := w.Strikes(plan.FaultAbort, w.commands[t-1].name, 0); yes {
		w.ForNode(n, d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindAbort, A: uint64(t)})
	}
}

func (w *cluster) giveAbort(n *world.Node, t effects.Ticket) {
	if w.commands[t-1].want.OfSender() {
		w.give(n, command{want: plan.WantAbort, target: t, body: &ops.Abort{Target: t}}, 0)
	} else {
		w.give(n, command{want: plan.WantAbort, target: t, body: &ops.Abort{Target: t}}, 0)
	}
}

// reserved starts to fill the pages; the second half comes later.
func (w *cluster) reserved(n *world.Node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	if e.Code != effects.OK {
		if j.batches[c.batch].tries < 3 && e.Code != effects.Draining {
			w.reserveAgain(n, c.job, c.batch)
		} else {
			j.failed = true
			w.letGoParts(n, j)
		}
		return
	}
	if j.recall {
		w.recall(n, e, c)
		return
	}
	w.oracles.onReserved(n, e, c)
	if w.Failure != nil {
		return
	}
	c.pages = w.Stock.Spans.Keep(e.Pages)
	size := uint64(n.Pool.PageBytes)
	b := j.batches[c.batch]
	for i := range c.pages {
		tokens := uint64(tokensPerChunk)
		if b.from+i+1 == b.to {
			tokens = uint64(j.tokensOf(b.from + i))
		}
		c.pages[i].Length = uint32(size * tokens / tokensPerChunk)
	}
	w.fill(n, j, b, c, 0)
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.name), 1)
	w.ForNode(n, d.Heavy(3*effects.Millisecond)+w.hoarded(c),
		world.Delivery{Kind: world.KindFilled, A: uint64(c.job), B: uint64(c.batch)})
}

func (w *cluster) reserveAgain(n *world.Node, i, b int) {
	w.jobs[i].batches[b].reserve = 0
	d := draw.Hash(w.Seed, draw.Engine, uint64(w.jobs[i].request)<<8|uint64(b), 2)
	w.ForNode(n, d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindFilled, A: uint64(i), B: uint64(b)})
}

// fill writes half of the chunks' content.
func (w *cluster) fill(n *world.Node, j *job, b batch, c *command, half int) {
	if half == 0 {
		c.count = w.NewFill()
	}
	for i, p := range c.pages {
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			n.Engine().Pages[p.Index].Stamps[part] = world.MakeStamp(j.ids[b.from+i], c.count<<5|uint32(i), part)
		}
	}
}

// filled puts a batch, and goes on with the next.
func (w *cluster) filled(i, bi int) {
	j := &w.jobs[i]
	n := w.Nodes[j.sender]
	b := &j.batches[bi]
	if b.reserve == 0 {
		w.reserveFor(n, i, bi)
		return
	}
	c := &w.commands[b.reserve-1]
	w.fill(n, j, *b, c, 1)
	last := bi+1 == len(j.batches)
	switch {
	case !j.whole || b.refilled:
		w.put(n, i, bi, 0, 0)
	case last:
		w.putParts(n, i)
	default:
		b.full = true
	}
	if !last && j.batches[bi+1].tries == 0 {
		w.reserveFor(n, i, bi+1)
	}
}

// put gives a put for a batch, which may be the first part of several that follow, or one that follows.
func (w *cluster) put(n *world.Node, i, bi int, follow uint32, first effects.Ticket) effects.Ticket {
	j := &w.jobs[i]
	b := &j.batches[bi]
	pages := w.commands[b.reserve-1].pages
	r := w.Nodes[j.receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	to := ops.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	if j.plainTo {
		to = ops.Peer{Host: world.OutsiderHost, InitPort: 1, AllocPort: 2}
	}
	body := w.bodies.puts.One(ops.Put{
		Peer:    to,
		Request: j.name, Keys: j.keys[b.from:b.to], Pages: pages, Layout: its(n).cfg.Layout,
		LastChunkTokens: j.tokensOf(b.to - 1), Last: bi+1 == len(j.batches), Follow: follow, First: first,
	})
	if b.refilled { // The request was told of these chunks already, as missing.
		body.Request, body.Last = nil, false
	}
	j.puts++
	b.life = r.Life
	b.put = w.give(n, command{want: plan.WantPut, job: i, batch: bi, body: body, pages: pages}, its(n).cfg.PutTimeout)
	w.maybeAbort(n, b.put)
	w.maybeConflict(n, b.put)
	return b.put
}

func (w *cluster) putEnded(n *world.Node, e *effects.Deliver, c *command) {
	w.oracles.onPutEnded(n, e, c)
	j := &w.jobs[c.job]
	j.puts--
	if e.Code != effects.OK {
		j.failed = true
		if !j.whole && neverTaken(e.Code) || w.tooLarge(n, c) {
			j.batches[c.batch].put = 0
		}
	} else {
		w.oracles.onPutOK(n, e, c)
	}
	j.ok = j.puts == 0 && !j.failed && (j.whole || c.batch+1 == len(j.batches))
	w.parted = j.whole
	if !e.Held && !c.returned {
		w.putReturned(n, c)
	}
}

// neverTaken: a command that ended so was refused as it came, and promises nothing.
func neverTaken(c effects.Code) bool {
	return c == effects.TooMany || c == effects.Invalid || c == effects.Draining || c == effects.Ended
}

// tooLarge says whether a put of n can never be offered: then it is refused as it comes.
func (w *cluster) tooLarge(n *world.Node, c *command) bool {
	return n.Pulls && len(c.pages) > w.LentMax(n)
}

// putReturned gives the reserved pages back once the put's memory is the engine's.
func (w *cluster) putReturned(n *world.Node, c *command) {
	w.oracles.onReturned(n, c)
	reserve := w.jobs[c.job].batches[c.batch].reserve
	if w.Failure != nil || w.refill(n, c) {
		return
	}
	w.giveRelease(n, reserve, w.bodies.releases.One(ops.Release{Reserved: reserve}))
}

// giveRelease releases, and now and then does so twice.
func (w *cluster) giveRelease(n *world.Node, t effects.Ticket, body effects.CommandBody) {
	kind := plan.WantRelease
	if _, got := body.(*ops.Unpin); got {
		kind = plan.WantUnpin
	}
	w.oracles.onRelease(n, t)
	w.give(n, command{want: kind, target: t, body: body}, 0)
	if w.Struck(plan.FaultAgain, w.commands[t-1].name, 0) {
		w.give(n, command{want: kind, target: t, body: body}, 0)
	}
}

func (w *cluster) drain(n *world.Node) {
	w.give(n, command{want: plan.WantDrain, body: &rank.Drain{Patience: 5 * effects.Second}}, 5*effects.Second)
}
