package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A prefill engine that computes a request layer by layer, in steps of some of its tokens each, and says of every layer
// that it is ready. At times it is preempted: it waits until it has its pages again, and computes all of it anew. Each
// command is given when the one before has its outcome: which one, follows from what a seed draws for the job.

// tokens is how many a chunk has.
const tokens = world.Parts

// A prefill is how a request is computed.
type prefill struct {
	j       *pd.Job
	base    int   // chunks that were there before
	skip    int   // tokens of those, and perhaps more
	total   int   // tokens, those included
	steps   []int // tokens that are computed behind each
	preempt int   // the command before which it is preempted; -1: none
	drop    int   // or dropped
	// its layers are ready from the last one on
	backwards bool
	careless  bool // it saves from the first chunk on, each time
	nowhere   bool // nobody is to get it
	patience  effects.Duration
}

// prefillOf draws it.
func prefillOf(w *pd.Cluster, j *pd.Job) (x prefill) {
	at := func(n uint64) draw.Of { return draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 40+n) }
	x = prefill{j: j, preempt: -1, drop: -1}
	if w.Seed >= draw.RestlessSeed || j.Probes() { // Nothing is drawn: it is as simple as can be.
		x.total = (len(chunksOf(j))-1)*tokens + int(j.TokensOf(len(j.Keys)-1))
		if x.steps = []int{x.total}; j.Said[preempted] {
			x.preempt = 1
		}
		return x
	}
	x.nowhere = at(26).Permille(50) && !j.Said[slow]
	x.backwards = j.Together > 0 && at(27).Permille(300)
	if x.careless = at(0).Permille(200); at(1).Permille(300) {
		x.base = at(2).Between(1, 3)
		x.skip = x.base*tokens + at(3).Between(0, tokens-1)
	}
	chunks := len(chunksOf(j))
	last := int(j.TokensOf(len(j.Keys) - 1))
	x.total = x.base*tokens + (chunks-1)*tokens + last
	for range at(4).Between(0, 3) {
		from := x.base * tokens
		if n := len(x.steps); n > 0 {
			from = x.steps[n-1]
		}
		if from < x.total {
			x.steps = append(x.steps, from+at(5+uint64(len(x.steps))).Between(1, x.total-from))
		}
	}
	if n := len(x.steps); n == 0 || x.steps[n-1] < x.total {
		x.steps = append(x.steps, x.total)
	}
	if at(24).Permille(100) && !j.Said[slow] {
		x.patience = at(25).Span(effects.Millisecond, 100*effects.Millisecond)
	}
	switch {
	case j.Said[preempted]:
		x.preempt = 1
	case j.Said[slow]:
	case at(20).Permille(300):
		x.preempt = at(21).Between(0, len(x.steps)*pagesOf(j))
	case at(22).Permille(80):
		x.drop = at(23).Between(0, len(x.steps)*pagesOf(j))
	}
	return x
}

// chunksOf are the keys of a job's chunks, and pagesOf how many pages its sender has of each.
func chunksOf(j *pd.Job) [][]byte {
	if j.Layers > 0 {
		return j.ChunkKeys
	}
	return j.Keys
}

func pagesOf(j *pd.Job) int { return max(j.Layers, j.Together) }

// rest is how many tokens are behind the last whole chunk.
func (x *prefill) rest() int { return x.total % tokens }

// begin begins with a job whose pages are reserved.
func begin(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	measures(n, j, c)
	computes(w, n, j, 1)
	x := prefillOf(w, j)
	give(w, n, j, 0, x.begin(w), 0)
}

// measures says how long the chunks of a job are in their pages.
func measures(n *world.Node, j *pd.Job, c *pd.Command) {
	for i := range c.Pages {
		c.Pages[i].Length = uint32(uint64(n.Pool.PageBytes) * uint64(j.TokensOf(i/max(1, j.Together))) / tokens)
	}
}

// begin is the command that begins it.
func (x *prefill) begin(w *pd.Cluster) pd.Command {
	body := ops.Begin{Request: x.j.Name, Skip: uint32(x.skip), Figures: figures(w, x.j)}
	if r := w.Nodes[x.j.Receiver]; !x.nowhere {
		init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
		body.Peer = engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	}
	return pd.Command{Want: begins, Body: &body}
}

// figures are what the engine knows of the time that it takes: some engines do.
func figures(w *pd.Cluster, j *pd.Job) (f ops.Figures) {
	if at := draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 70); w.Seed < draw.RestlessSeed && at.Permille(500) {
		f = ops.Figures{Chunks: uint32(len(chunksOf(j))), ComputeNS: 1 + at.Again().Below(1<<20), LinkBytes: 1 << 20,
			BatchNS: draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 71).Below(1 << 20)}
	}
	return f
}

// computes has the engine fill its pages, which are its own: all layers of an epoch have one origin.
func computes(w *pd.Cluster, n *world.Node, j *pd.Job, _ int) {
	c := &w.Commands[j.Batches[0].Reserve-1]
	c.Count = w.NewFill()
	for i, p := range c.Pages {
		pg := &n.Pool.Pages[p.Index]
		for part := range pg.Stamps {
			if j.Together > 0 {
				pg.Stamps[part] = world.MakeStamp(j.Ids[i/j.Together], world.LayerOf(c.Count<<5, i%j.Together), part)
				continue
			}
			pg.Stamps[part] = world.MakeStamp(j.Ids[i], c.Count<<5, part)
		}
	}
}

// give gives a command of a job, whose place in what is drawn for that is from.
func give(w *pd.Cluster, n *world.Node, j *pd.Job, from int, c pd.Command, in effects.Duration) effects.Ticket {
	c.Job, c.From, c.Target = j.Place, from, j.Batches[0].Reserve
	return pd.GiveIn(w, n, in, c, patience(n, &c))
}

// patience is how long a command may wait: none but the last does.
func patience(n *world.Node, c *pd.Command) effects.Duration {
	body, ok := c.Body.(*ops.Finish)
	switch {
	case !ok:
		return 0
	case body.Patience == 0:
		return pd.Its(n).Cfg.PutTimeout
	}
	return body.Patience
}

// next has the engine go on at a place of what is drawn for a job, when it has computed for a while.
func next(w *pd.Cluster, n *world.Node, j *pd.Job, at int) {
	in := draw.Hash(w.Seed, draw.Engine, uint64(j.Place)<<8|uint64(at), 72).Heavy(effects.Millisecond)
	switch {
	case j.Probes(): // Some ranks remember a request for no longer than an engine may take for a layer.
		in = 0
	case j.Said[slow]:
		in = 6 * pd.Its(n).Cfg.BundleTTL / 10
	}
	pd.Later(w, n, j, at, in)
}

// goOn gives the command at a place of what is drawn for a job: each layer of each step, then the end.
func goOn(w *pd.Cluster, n *world.Node, j *pd.Job, at int) {
	x := prefillOf(w, j)
	switch {
	case at == x.preempt && !wasPreempted(w, n, j):
		give(w, n, j, at, pd.Command{Want: stops, Body: &ops.Preempt{Request: j.Name}}, 0)
	case at == x.drop:
		give(w, n, j, at, pd.Command{Want: stops, Body: &ops.Drop{Request: j.Name}}, 0)
	case at < len(x.steps)*pagesOf(j):
		give(w, n, j, at, x.save(w, at), 0)
	default:
		t := give(w, n, j, at, x.finish(w), 0)
		w.MaybeAbort(n, t)
	}
}

// save is the command that says that a layer of a step is ready.
func (x *prefill) save(w *pd.Cluster, at int) pd.Command {
	j := x.j
	step, layer := at/pagesOf(j), at%pagesOf(j)
	if x.backwards {
		layer = pagesOf(j) - 1 - layer
	}
	from, to := 0, max(0, x.steps[step]/tokens-x.base)
	if step > 0 && !x.careless {
		from = max(0, x.steps[step-1]/tokens-x.base)
	}
	body := ops.Save{
		Request: j.Name, Layer: uint32(layer), Tokens: uint32(x.steps[step]), First: uint32(x.base + from),
	}
	all := w.Commands[j.Batches[0].Reserve-1].Pages
	for i := from; i < to; i++ {
		body.Keys, body.Pages = append(body.Keys, chunksOf(j)[i]), append(body.Pages, all[i*pagesOf(j)+layer])
	}
	return pd.Command{Want: saves, Body: &body, Pages: body.Pages}
}

// finish is the command that ends it.
func (x *prefill) finish(w *pd.Cluster) pd.Command {
	j := x.j
	body := ops.Finish{Request: j.Name, Tokens: uint32(x.total), Patience: x.patience}
	if x.rest() > 0 {
		all := w.Commands[j.Batches[0].Reserve-1].Pages
		body.Key, body.Pages = chunksOf(j)[len(chunksOf(j))-1], all[len(all)-pagesOf(j):]
	}
	return pd.Command{Want: finishes, Body: &body, Pages: body.Pages}
}

// given counts the commands of a kind that an engine gave for a job in this life.
func given(w *pd.Cluster, n *world.Node, j *pd.Job, want plan.Want) (count int) {
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Want == want && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life {
			count++
		}
	}
	return count
}

// wasPreempted says whether an engine has preempted a job in this life.
func wasPreempted(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		if c := &w.Commands[i]; preempts(c) && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life {
			return true
		}
	}
	return false
}

// preempts and drops say which a command is of those that stop a request.
func preempts(c *pd.Command) bool { _, is := c.Body.(*ops.Preempt); return is && c.Want == stops }
func drops(c *pd.Command) bool    { _, is := c.Body.(*ops.Drop); return is && c.Want == stops }

// ours says whether a command is one of a layerwise job.
func ours(c *pd.Command) bool {
	return c.Want == begins || c.Want == saves || c.Want == stops || c.Want == finishes
}

// busy says whether a rank still has pages of a job, or owes an outcome of it.
func busy(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		if c := &w.Commands[i]; ours(c) && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life && !c.Ended() {
			return true
		}
	}
	return false
}

// ended takes the outcome of a command: the next one follows.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &w.Jobs[c.Job]
	from, want := c.From, c.Want
	if !e.Held {
		back(w, n, c)
	}
	switch {
	case w.Failure != nil:
	case want == finishes || drops(c) || want == begins && e.Code != effects.OK:
		tell(w, n, j, e.Code, want == finishes)
		letGo(w, n, j)
	case want == saves && e.Code == effects.TooMany && given(w, n, j, saves) < 100:
		give(w, n, j, from, again(c), 10*effects.Millisecond)
	case want == saves && (e.Code == effects.TooMany || e.Code == effects.NotFound):
		give(w, n, j, from, pd.Command{Want: stops, Body: &ops.Drop{Request: j.Name}}, 0)
	case want == saves && e.Code != effects.OK: // It has failed: its end says how.
		x := prefillOf(w, j)
		give(w, n, j, from, x.finish(w), 0)
	case preempts(c):
		tellsEarly(w, n, j)
		resume(w, n, j)
	case want == begins:
		next(w, n, j, 0)
	default:
		next(w, n, j, from+1)
	}
}

// tell has an engine say how a request ended, which the receiver of no other one is told of: all of it was sent if the
// last command ended well, and else no more comes. Of a request that nobody is to get nobody is told.
func tell(w *pd.Cluster, n *world.Node, j *pd.Job, code effects.Code, finished bool) {
	if prefillOf(w, j).nowhere {
		return
	}
	if code == effects.OK && !finished {
		code = effects.Cancelled
	}
	pd.Tell(w, n, j, code)
}

// tellsEarly has an engine give up a request that is preempted, at times, and compute it anew all the same: what goes
// then begins the request once more.
func tellsEarly(w *pd.Cluster, n *world.Node, j *pd.Job) {
	if early := draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 73); w.Seed < draw.RestlessSeed && early.Permille(300) {
		tell(w, n, j, effects.Cancelled, false)
	}
}

// back has it judged that the pages of a command are the engine's again. A careless one names pages that go already:
// they come back with what they go for.
func back(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if x := prefillOf(w, j); !x.careless || !busy(w, n, j) {
		pd.OnReturned.Report(&w.Panel, n.ID, pd.Returned{Node: n, Command: c})
	}
}

// again is a command once more.
func again(c *pd.Command) pd.Command { return pd.Command{Want: c.Want, Body: c.Body, Pages: c.Pages} }

// returned takes pages that are the engine's again.
func returned(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if back(w, n, c); w.Failure != nil {
		return
	}
	if wasPreempted(w, n, j) {
		resume(w, n, j)
	}
	if over(w, n, j) {
		letGo(w, n, j)
	}
}

// over says whether the last command of a job was given.
func over(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		c := &w.Commands[i]
		if c.Job == j.Place && c.Node == n.ID && c.Life == n.Life && c.Over &&
			(drops(c) || c.Want == finishes || c.Want == begins && c.Code != effects.OK) {
			return true
		}
	}
	return false
}

// resume computes a request anew that was preempted, once its pages are the engine's.
func resume(w *pd.Cluster, n *world.Node, j *pd.Job) {
	last := effects.Ticket(0)
	for i := range w.Commands {
		if c := &w.Commands[i]; ours(c) && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life {
			last = effects.Ticket(i + 1)
		}
	}
	if last == 0 || !preempts(&w.Commands[last-1]) || busy(w, n, j) {
		return
	}
	if w.Commands[last-1].Code != effects.OK {
		letGo(w, n, j)
		return
	}
	computes(w, n, j, 2)
	next(w, n, j, 0)
}

// letGo gives the pages of a job back, once they are the engine's.
func letGo(w *pd.Cluster, n *world.Node, j *pd.Job) {
	reserve := j.Batches[0].Reserve
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Want == plan.WantRelease && c.Target == reserve {
			return
		}
	}
	if reserve != 0 && !busy(w, n, j) {
		w.Release(n, reserve)
	}
}

var _ = protocol.LayersMax
