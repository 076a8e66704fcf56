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

// A prefill engine computes a request in steps of some tokens each, layer by layer, and reports every layer as ready.
// At times a request is preempted: the engine waits until the pages are returned, and computes the whole request again.
// The engine gives each command when the previous command has its outcome. A script, which the seed draws for the job,
// decides which command is next.

// tokens is the number of tokens in a chunk.
const tokens = world.Parts

// A prefill is the script by which an engine computes a request.
type prefill struct {
	j       *pd.Job
	base    int   // leading chunks that the engine had before
	skip    int   // leading tokens that need no computation; they may end inside a chunk
	total   int   // all tokens of the request, including the chunks above
	steps   []int // number of computed tokens after each step
	preempt int   // index of the command before which the request is preempted; -1 if none
	drop    int   // index of the command before which the request is dropped; -1 if none
	// the layers of a step are ready in reverse order
	backwards bool
	careless  bool // each save starts from the first chunk again
	nowhere   bool // the request has no receiver
	patience  effects.Duration
}

// prefillOf draws the script of a job.
func prefillOf(w *pd.Cluster, j *pd.Job) (x prefill) {
	at := func(n uint64) draw.Of { return draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 40+n) }
	x = prefill{j: j, preempt: -1, drop: -1}
	if w.Seed >= draw.RestlessSeed || j.Probes() { // Nothing is drawn: the script is as simple as possible.
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

// chunksOf returns the keys of a job's chunks.
func chunksOf(j *pd.Job) [][]byte {
	if j.Layers > 0 {
		return j.ChunkKeys
	}
	return j.Keys
}

// pagesOf returns the number of pages in which the sender has each chunk of a job.
func pagesOf(j *pd.Job) int { return max(j.Layers, j.Together) }

// rest returns the number of tokens after the last whole chunk.
func (x *prefill) rest() int { return x.total % tokens }

// begin starts a job whose pages are reserved.
func begin(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	measures(n, j, c)
	computes(w, n, j, 1)
	x := prefillOf(w, j)
	give(w, n, j, 0, x.begin(w), 0)
}

// measures sets the lengths of the chunks of a job in the reserved pages.
func measures(n *world.Node, j *pd.Job, c *pd.Command) {
	for i := range c.Pages {
		c.Pages[i].Length = uint32(uint64(n.Pool.PageBytes) * uint64(j.TokensOf(i/max(1, j.Together))) / tokens)
	}
}

// begin returns the command that begins the request.
func (x *prefill) begin(w *pd.Cluster) pd.Command {
	body := ops.Begin{Request: x.j.Name, Skip: uint32(x.skip), Figures: figures(w, x.j)}
	if r := w.Nodes[x.j.Receiver]; !x.nowhere {
		init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
		body.Peer = engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	}
	return pd.Command{Want: begins, Body: &body}
}

// figures draws the estimates of compute and transfer time that some engines state.
func figures(w *pd.Cluster, j *pd.Job) (f ops.Figures) {
	if at := draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 70); w.Seed < draw.RestlessSeed && at.Permille(500) {
		f = ops.Figures{Chunks: uint32(len(chunksOf(j))), ComputeNS: 1 + at.Again().Below(1<<20), LinkBytes: 1 << 20,
			BatchNS: draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 71).Below(1 << 20)}
	}
	return f
}

// computes fills the pages, which belong to the engine, so that all layers of an epoch have the same origin.
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

// give gives a command of a job after a delay. The argument from is the position in the job's script.
func give(w *pd.Cluster, n *world.Node, j *pd.Job, from int, c pd.Command, in effects.Duration) effects.Ticket {
	c.Job, c.From, c.Target = j.Place, from, j.Batches[0].Reserve
	return pd.GiveIn(w, n, in, c, patience(n, &c))
}

// patience returns the timeout of a command. Only the last command of a request may wait.
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

// next schedules the command at a position of a job's script, after the time that the engine computes.
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

// goOn gives the command at a position of a job's script: a save for each layer of each step, and then the finish.
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

// save returns the command that reports a layer of a step as ready.
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

// finish returns the command that finishes the request.
func (x *prefill) finish(w *pd.Cluster) pd.Command {
	j := x.j
	body := ops.Finish{Request: j.Name, Tokens: uint32(x.total), Patience: x.patience}
	if x.rest() > 0 {
		all := w.Commands[j.Batches[0].Reserve-1].Pages
		body.Key, body.Pages = chunksOf(j)[len(chunksOf(j))-1], all[len(all)-pagesOf(j):]
	}
	return pd.Command{Want: finishes, Body: &body, Pages: body.Pages}
}

// given counts the commands of a kind that an engine has given for a job in the present incarnation.
func given(w *pd.Cluster, n *world.Node, j *pd.Job, want plan.Want) (count int) {
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Want == want && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life {
			count++
		}
	}
	return count
}

// wasPreempted reports whether an engine has preempted a job in the present incarnation.
func wasPreempted(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		if c := &w.Commands[i]; preempts(c) && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life {
			return true
		}
	}
	return false
}

// preempts reports whether a command preempts a request.
func preempts(c *pd.Command) bool { _, is := c.Body.(*ops.Preempt); return is && c.Want == stops }

// drops reports whether a command drops a request.
func drops(c *pd.Command) bool { _, is := c.Body.(*ops.Drop); return is && c.Want == stops }

// ours reports whether a command belongs to a layerwise push.
func ours(c *pd.Command) bool {
	return c.Want == begins || c.Want == saves || c.Want == stops || c.Want == finishes
}

// busy reports whether a rank still holds pages of a job, or has not delivered an outcome of the job.
func busy(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		if c := &w.Commands[i]; ours(c) && c.Job == j.Place && c.Node == n.ID && c.Life == n.Life && !c.Ended() {
			return true
		}
	}
	return false
}

// ended handles the outcome of a command, and gives the next command.
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
	case want == saves && e.Code != effects.OK: // The push has failed; the outcome of the finish says why.
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

// tell makes the engine report the end of a request to the receiver, unless the request has no receiver. The report
// says that everything was sent if the last command succeeded, and that no more chunks come otherwise.
func tell(w *pd.Cluster, n *world.Node, j *pd.Job, code effects.Code, finished bool) {
	if prefillOf(w, j).nowhere {
		return
	}
	if code == effects.OK && !finished {
		code = effects.Cancelled
	}
	pd.Tell(w, n, j, code)
}

// tellsEarly makes the engine of a preempted request sometimes report the request as cancelled, and still compute the
// request again. The next layer that is sent then begins the request again at the receiver.
func tellsEarly(w *pd.Cluster, n *world.Node, j *pd.Job) {
	if early := draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 73); w.Seed < draw.RestlessSeed && early.Permille(300) {
		tell(w, n, j, effects.Cancelled, false)
	}
}

// back reports to the oracles that the pages of a command belong to the engine again. If saves start from the first
// chunk again, several commands name the same pages, so the report waits for the last of these commands.
func back(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if x := prefillOf(w, j); !x.careless || !busy(w, n, j) {
		pd.OnReturned.Report(&w.Panel, n.ID, pd.Returned{Node: n, Command: c})
	}
}

// again returns a copy of a command, to give it again.
func again(c *pd.Command) pd.Command { return pd.Command{Want: c.Want, Body: c.Body, Pages: c.Pages} }

// returned handles the return of the pages of a command.
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

// over reports whether the last command of a job has its outcome.
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

// resume computes a preempted request again, once all pages belong to the engine.
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

// letGo releases the pages of a job, once all of them belong to the engine.
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
