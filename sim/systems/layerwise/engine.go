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

// chunkTokens is the number of tokens in a chunk.
const chunkTokens = world.Parts

// A prefill is the script by which an engine computes a request.
type prefill struct {
	job          *pd.Job
	cachedChunks int   // leading chunks that the engine had before
	skipTokens   int   // leading tokens that need no computation; they may end inside a chunk
	totalTokens  int   // all tokens of the request, including the chunks above
	stepEnds     []int // number of computed tokens after each step
	preemptAt    int   // index of the command before which the request is preempted; -1 if none
	dropAt       int   // index of the command before which the request is dropped; -1 if none
	// the layers of a step are ready in reverse order
	lastLayerFirst bool
	resavesAll     bool // each save starts from the first chunk again
	noReceiver     bool // the request has no receiver
	// layerDelay is the time for each layer, in thousandths of BundleTTL; 0: the usual time, which is much shorter
	layerDelay    int
	pauseAt       int // index of the command before which the engine is idle for longer than its request is kept; -1 if none
	finishTimeout effects.Duration
}

// drawPrefill draws the script of a job.
func drawPrefill(w *pd.Cluster, j *pd.Job) (x prefill) {
	at := func(n uint64) draw.Value { return draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 40+n) }
	x = prefill{job: j, preemptAt: -1, dropAt: -1, pauseAt: -1}
	if draw.IsFixed(w.Seed) || j.IsProbe() { // Nothing is drawn: the script is as simple as possible.
		x.totalTokens = (len(chunkKeys(j))-1)*chunkTokens + int(j.TokensOf(len(j.Keys)-1))
		if x.stepEnds = []int{x.totalTokens}; j.Flags[preemptedFlag] {
			x.preemptAt = 1
		}
		return x
	}
	x.noReceiver = at(26).ChancePermille(50) && !j.Flags[slowFlag]
	x.lastLayerFirst = j.SenderPagesPerChunk > 0 && at(27).ChancePermille(300)
	if x.resavesAll = at(0).ChancePermille(200); at(1).ChancePermille(300) {
		x.cachedChunks = at(2).Between(1, 3)
		x.skipTokens = x.cachedChunks*chunkTokens + at(3).Between(0, chunkTokens-1)
	}
	chunks := len(chunkKeys(j))
	last := int(j.TokensOf(len(j.Keys) - 1))
	x.totalTokens = x.cachedChunks*chunkTokens + (chunks-1)*chunkTokens + last
	for range at(4).Between(0, 3) {
		from := x.cachedChunks * chunkTokens
		if n := len(x.stepEnds); n > 0 {
			from = x.stepEnds[n-1]
		}
		if from < x.totalTokens {
			x.stepEnds = append(x.stepEnds, from+at(5+uint64(len(x.stepEnds))).Between(1, x.totalTokens-from))
		}
	}
	if n := len(x.stepEnds); n == 0 || x.stepEnds[n-1] < x.totalTokens {
		x.stepEnds = append(x.stepEnds, x.totalTokens)
	}
	if at(24).ChancePermille(100) && !j.Flags[slowFlag] {
		x.finishTimeout = at(25).Duration(effects.Millisecond, 100*effects.Millisecond)
	}
	if pace := at(28); !j.Flags[slowFlag] {
		slowPermille := 60
		if hasLateOpenings(w.SourcePlan) { // Chunks stay incomplete until the late openings arrive.
			slowPermille = 300
		}
		if pace.ChancePermille(slowPermille) {
			x.layerDelay = at(29).Between(200, 900)
		} else if pace.Rehash().ChancePermille(80) {
			x.pauseAt = at(30).Between(0, len(x.stepEnds)*pagesPerChunk(j))
		}
	}
	switch {
	case j.Flags[preemptedFlag]:
		x.preemptAt = 1
	case j.Flags[slowFlag]:
	case j.Flags[hastyFlag]: // The batches of the request are in flight when the Finish expires.
		x.finishTimeout = at(31).Duration(1, 4) * effects.Duration(w.SourcePlan.Delays.Message)
	case at(20).ChancePermille(300):
		x.preemptAt = at(21).Between(0, len(x.stepEnds)*pagesPerChunk(j))
	case at(22).ChancePermille(80):
		x.dropAt = at(23).Between(0, len(x.stepEnds)*pagesPerChunk(j))
	}
	return x
}

// chunkKeys returns the keys of a job's chunks.
func chunkKeys(j *pd.Job) [][]byte {
	if j.Layers > 0 {
		return j.ChunkKeys
	}
	return j.Keys
}

// pagesPerChunk returns the number of pages in which the sender has each chunk of a job.
func pagesPerChunk(j *pd.Job) int { return max(j.Layers, j.SenderPagesPerChunk) }

// tailTokens returns the number of tokens after the last whole chunk.
func (x *prefill) tailTokens() int { return x.totalTokens % chunkTokens }

// beginJob starts a job whose pages are reserved.
func beginJob(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	setLengths(n, j, c)
	fillPages(w, n, j, 1)
	x := drawPrefill(w, j)
	giveCommand(w, n, j, 0, x.beginCommand(w), 0)
}

// setLengths sets the lengths of the chunks of a job in the reserved pages.
func setLengths(n *world.Node, j *pd.Job, c *pd.Command) {
	for i := range c.Pages {
		c.Pages[i].Length = uint32(uint64(n.Pool.PageBytes) * uint64(j.TokensOf(i/max(1, j.SenderPagesPerChunk))) / chunkTokens)
	}
}

// beginCommand returns the command that begins the request.
func (x *prefill) beginCommand(w *pd.Cluster) pd.Command {
	body := ops.Begin{Request: x.job.Name, Skip: uint32(x.skipTokens), Figures: drawFigures(w, x.job)}
	if r := w.Nodes[x.job.Receiver]; !x.noReceiver {
		init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
		body.Peer = engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port}
	}
	return pd.Command{Kind: wantBegin, Body: &body}
}

// drawFigures draws the estimates of compute and transfer time that some engines state.
func drawFigures(w *pd.Cluster, j *pd.Job) (f ops.Figures) {
	if at := draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 70); !draw.IsFixed(w.Seed) && at.ChancePermille(500) {
		f = ops.Figures{Chunks: uint32(len(chunkKeys(j))), ComputeNS: 1 + at.Rehash().Below(1<<20), LinkBytes: 1 << 20,
			BatchNS: draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 71).Below(1 << 20)}
	}
	return f
}

// fillPages fills the pages, which belong to the engine, so that all layers of an epoch have the same origin.
func fillPages(w *pd.Cluster, n *world.Node, j *pd.Job, _ int) {
	c := &w.Commands[j.Batches[0].Reserve-1]
	c.Count = w.NewFill()
	for i, p := range c.Pages {
		pg := &n.Pool.Pages[p.Index]
		for part := range pg.Stamps {
			if j.SenderPagesPerChunk > 0 {
				pg.Stamps[part] = world.MakeStamp(j.KeyNumbers[i/j.SenderPagesPerChunk], world.LayerOf(c.Count<<5, i%j.SenderPagesPerChunk), part)
				continue
			}
			pg.Stamps[part] = world.MakeStamp(j.KeyNumbers[i], c.Count<<5, part)
		}
	}
}

// giveCommand gives a command of a job after a delay. The argument from is the position in the job's script.
func giveCommand(w *pd.Cluster, n *world.Node, j *pd.Job, from int, c pd.Command, delay effects.Duration) effects.Ticket {
	c.Job, c.From, c.Target = j.Index, from, j.Batches[0].Reserve
	return pd.GiveCommandAfter(w, n, delay, c, commandTimeout(n, &c))
}

// commandTimeout returns the timeout of a command. Only the last command of a request may wait.
func commandTimeout(n *world.Node, c *pd.Command) effects.Duration {
	body, ok := c.Body.(*ops.Finish)
	switch {
	case !ok:
		return 0
	case body.Timeout == 0:
		return pd.InfoOf(n).Cfg.PutTimeout
	}
	return body.Timeout
}

// scheduleNext schedules the command at a position of a job's script, after the time that the engine computes.
func scheduleNext(w *pd.Cluster, n *world.Node, j *pd.Job, at int) {
	delay := draw.Hash(w.Seed, draw.Engine, uint64(j.Index)<<8|uint64(at), 72).HeavyTail(effects.Millisecond)
	switch {
	case j.IsProbe(): // Some ranks remember a request for no longer than an engine may take for a layer.
		delay = 0
	case j.Flags[slowFlag]:
		delay = 6 * pd.InfoOf(n).Cfg.BundleTTL / 10
	case hasFewSlots(w.SourcePlan): // Other requests are computed while the batches of those that ended are in flight.
		delay /= 8
	default:
		cfg := &pd.InfoOf(n).Cfg
		switch x := drawPrefill(w, j); {
		case x.layerDelay > 0:
			delay = min(cfg.BundleTTL*effects.Duration(x.layerDelay)/1000, slowJobMax/effects.Duration(len(x.stepEnds)*pagesPerChunk(j)))
		case x.pauseAt == at:
			// The receiver gives up the chunks that are incomplete, and a sender with a short RunTTL the request.
			delay = min(max(cfg.BundleTTL, min(cfg.RunTTL, effects.Second))*3/2, slowJobMax)
		}
	}
	pd.ContinueLater(w, n, j, at, delay)
}

// slowJobMax is the longest time that a slow engine computes for a job, so that the job ends before the run does.
const slowJobMax = 5 * effects.Second

// continueJob gives the command at a position of a job's script: a save for each layer of each step, and then the
// finish.
func continueJob(w *pd.Cluster, n *world.Node, j *pd.Job, at int) {
	x := drawPrefill(w, j)
	switch {
	case at == x.preemptAt && !wasPreempted(w, n, j):
		giveCommand(w, n, j, at, pd.Command{Kind: wantStop, Body: &ops.Preempt{Request: j.Name}}, 0)
	case at == x.dropAt:
		giveCommand(w, n, j, at, pd.Command{Kind: wantStop, Body: &ops.Drop{Request: j.Name}}, 0)
	case at < len(x.stepEnds)*pagesPerChunk(j):
		giveCommand(w, n, j, at, x.saveCommand(w, at), 0)
	default:
		t := giveCommand(w, n, j, at, x.finishCommand(w), 0)
		w.MaybeAbort(n, t)
	}
}

// saveCommand returns the command that reports a layer of a step as ready.
func (x *prefill) saveCommand(w *pd.Cluster, at int) pd.Command {
	j := x.job
	step, layer := at/pagesPerChunk(j), at%pagesPerChunk(j)
	if x.lastLayerFirst {
		layer = pagesPerChunk(j) - 1 - layer
	}
	from, to := 0, max(0, x.stepEnds[step]/chunkTokens-x.cachedChunks)
	if step > 0 && !x.resavesAll {
		from = max(0, x.stepEnds[step-1]/chunkTokens-x.cachedChunks)
	}
	body := ops.Save{
		Request: j.Name, Layer: uint32(layer), Tokens: uint32(x.stepEnds[step]), First: uint32(x.cachedChunks + from),
	}
	all := w.Commands[j.Batches[0].Reserve-1].Pages
	for i := from; i < to; i++ {
		body.Keys, body.Pages = append(body.Keys, chunkKeys(j)[i]), append(body.Pages, all[i*pagesPerChunk(j)+layer])
	}
	return pd.Command{Kind: wantSave, Body: &body, Pages: body.Pages}
}

// finishCommand returns the command that finishes the request.
func (x *prefill) finishCommand(w *pd.Cluster) pd.Command {
	j := x.job
	body := ops.Finish{Request: j.Name, Tokens: uint32(x.totalTokens), Timeout: x.finishTimeout}
	if x.tailTokens() > 0 {
		all := w.Commands[j.Batches[0].Reserve-1].Pages
		body.Key, body.Pages = chunkKeys(j)[len(chunkKeys(j))-1], all[len(all)-pagesPerChunk(j):]
	}
	return pd.Command{Kind: wantFinish, Body: &body, Pages: body.Pages}
}

// countCommands counts the commands of a kind that an engine has given for a job in the present incarnation.
func countCommands(w *pd.Cluster, n *world.Node, j *pd.Job, want plan.CommandKind) (count int) {
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Kind == want && c.Job == j.Index && c.Node == n.ID && c.Incarnation == n.Incarnation {
			count++
		}
	}
	return count
}

// wasPreempted reports whether an engine has preempted a job in the present incarnation.
func wasPreempted(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		if c := &w.Commands[i]; isPreempt(c) && c.Job == j.Index && c.Node == n.ID && c.Incarnation == n.Incarnation {
			return true
		}
	}
	return false
}

// isPreempt reports whether a command preempts a request.
func isPreempt(c *pd.Command) bool { _, is := c.Body.(*ops.Preempt); return is && c.Kind == wantStop }

// isDrop reports whether a command drops a request.
func isDrop(c *pd.Command) bool { _, is := c.Body.(*ops.Drop); return is && c.Kind == wantStop }

// isLayerCommand reports whether a command belongs to a layerwise push.
func isLayerCommand(c *pd.Command) bool {
	return c.Kind == wantBegin || c.Kind == wantSave || c.Kind == wantStop || c.Kind == wantFinish
}

// isBusy reports whether a rank still holds pages of a job, or has not delivered an outcome of the job.
func isBusy(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	for i := range w.Commands {
		if c := &w.Commands[i]; isLayerCommand(c) && c.Job == j.Index && c.Node == n.ID && c.Incarnation == n.Incarnation && !c.HasMemoryBack() {
			return true
		}
	}
	return false
}

// handleOutcome handles the outcome of a command, and gives the next command.
func handleOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &w.Jobs[c.Job]
	from, want := c.From, c.Kind
	if !e.Held {
		reportReturned(w, n, c)
	}
	switch {
	case w.Failure != nil:
	case want == wantBegin && e.Code == effects.TooMany && hasFewSlots(w.SourcePlan) && countCommands(w, n, j, wantBegin) < 50:
		giveCommand(w, n, j, from, repeatCommand(c), 2*effects.Millisecond)
	case want == wantFinish || isDrop(c) || want == wantBegin && e.Code != effects.OK:
		reportEnd(w, n, j, e.Code, want == wantFinish)
		releasePages(w, n, j)
	case want == wantSave && e.Code == effects.TooMany && countCommands(w, n, j, wantSave) < 100:
		giveCommand(w, n, j, from, repeatCommand(c), 10*effects.Millisecond)
	case want == wantSave && (e.Code == effects.TooMany || e.Code == effects.NotFound):
		giveCommand(w, n, j, from, pd.Command{Kind: wantStop, Body: &ops.Drop{Request: j.Name}}, 0)
	case want == wantSave && e.Code == effects.TooLarge && e.Why != nil && e.Why.Field == "First": // The request has too many chunks.
		giveCommand(w, n, j, from, pd.Command{Kind: wantStop, Body: &ops.Drop{Request: j.Name}}, 0)
	case want == wantSave && e.Code != effects.OK: // The push has failed; the outcome of the finish says why.
		x := drawPrefill(w, j)
		giveCommand(w, n, j, from, x.finishCommand(w), 0)
	case isPreempt(c):
		maybeReportEarly(w, n, j)
		resumeJob(w, n, j)
	case want == wantBegin:
		scheduleNext(w, n, j, 0)
	default:
		scheduleNext(w, n, j, from+1)
	}
}

// reportEnd makes the engine report the end of a request to the receiver, unless the request has no receiver. The
// report says that everything was sent if the last command succeeded, and that no more chunks come otherwise.
func reportEnd(w *pd.Cluster, n *world.Node, j *pd.Job, code effects.Code, finished bool) {
	if drawPrefill(w, j).noReceiver {
		return
	}
	if code == effects.OK && !finished {
		code = effects.Cancelled
	}
	pd.MaybeReportEnd(w, n, j, code)
}

// maybeReportEarly makes the engine of a preempted request sometimes report the request as cancelled, and still compute
// the request again. The next layer that is sent then begins the request again at the receiver.
func maybeReportEarly(w *pd.Cluster, n *world.Node, j *pd.Job) {
	if early := draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 73); !draw.IsFixed(w.Seed) && early.ChancePermille(300) {
		reportEnd(w, n, j, effects.Cancelled, false)
	}
}

// reportReturned reports to the oracles that the pages of a command belong to the engine again. If saves start from the
// first chunk again, several commands name the same pages, so the report waits for the last of these commands.
func reportReturned(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if x := drawPrefill(w, j); !x.resavesAll || !isBusy(w, n, j) {
		pd.OnPutReturned.Report(&w.Panel, n.ID, pd.PutReturned{Node: n, Command: c})
	}
}

// repeatCommand returns a copy of a command, to give it again.
func repeatCommand(c *pd.Command) pd.Command {
	return pd.Command{Kind: c.Kind, Body: c.Body, Pages: c.Pages}
}

// handleReturn handles the return of the pages of a command.
func handleReturn(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if reportReturned(w, n, c); w.Failure != nil {
		return
	}
	if wasPreempted(w, n, j) {
		resumeJob(w, n, j)
	}
	if isFinished(w, n, j) {
		releasePages(w, n, j)
	}
}

// isFinished reports whether the last command of a job has its outcome. A begin that was refused is not the last command
// if the engine repeated it.
func isFinished(w *pd.Cluster, n *world.Node, j *pd.Job) (finished bool) {
	for i := range w.Commands {
		switch c := &w.Commands[i]; {
		case c.Job != j.Index || c.Node != n.ID || c.Incarnation != n.Incarnation:
		case c.Kind == wantBegin:
			finished = c.Finished && c.Code != effects.OK
		case c.Finished && (isDrop(c) || c.Kind == wantFinish):
			return true
		}
	}
	return finished
}

// resumeJob computes a preempted request again, once all pages belong to the engine.
func resumeJob(w *pd.Cluster, n *world.Node, j *pd.Job) {
	last := effects.Ticket(0)
	for i := range w.Commands {
		if c := &w.Commands[i]; isLayerCommand(c) && c.Job == j.Index && c.Node == n.ID && c.Incarnation == n.Incarnation {
			last = effects.Ticket(i + 1)
		}
	}
	if last == 0 || !isPreempt(&w.Commands[last-1]) || isBusy(w, n, j) {
		return
	}
	if w.Commands[last-1].Code != effects.OK {
		releasePages(w, n, j)
		return
	}
	fillPages(w, n, j, 2)
	scheduleNext(w, n, j, 0)
}

// releasePages releases the pages of a job, once all of them belong to the engine.
func releasePages(w *pd.Cluster, n *world.Node, j *pd.Job) {
	reserve := j.Batches[0].Reserve
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Kind == plan.CommandRelease && c.Target == reserve {
			return
		}
	}
	if reserve != 0 && !isBusy(w, n, j) {
		w.ReleaseReserve(n, reserve)
	}
}

var _ = protocol.LayersMax
