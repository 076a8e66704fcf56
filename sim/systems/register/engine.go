package register

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// This file contains two engines and the router before them. The router dispatches a request to both engines. The ranks
// of the producer compute the request at about the same time and report it as finished. The consumer takes blocks for
// the part that it has not cached, and registers the blocks. Some requests are dispatched to a single engine, some are
// aborted at either engine, and some are cached as a whole. An engine uses a block for another request as soon as the
// block is returned, and fills the block at once, so that the oracles notice a late write or read.

// A request describes how the two engines handle one job.
type request struct {
	w              *pd.Cluster
	job            *pd.Job
	shape          shape
	isFixed        bool // nothing is drawn
	promptBlocks   uint64
	cachedBlocks   uint64 // kernel blocks of the prompt that the consumer has cached
	computedBlocks uint64 // kernel blocks that the producer has, which may be more or fewer than the consumer needs
	// With two groups, the second covers only the end of the prompt, on either side, and a group may be left out.
	window        [2]uint64 // kernel blocks from the end of the prompt, by side
	omittedGroup  int       // group that the consumer leaves out; -1 if none
	retries       [2]bool   // the router retries under the same names, by side
	namesTransfer bool      // the router named the transfer
	sharesName    bool      // the name equals that of another request except for the end
	sendsExpect   bool
	fate          fate
}

// A fate is what happens to a request.
type fate uint8

const (
	fateWritten      fate = iota
	fateNotNeeded         // the consumer has all blocks of the request
	fateAborted           // by the producer's engine, before or after it was computed
	fateProducerOnly      // dispatched to the producer only
	fateConsumerOnly      // dispatched to the consumer only
)

// drawRequest draws the request of a job.
func drawRequest(w *pd.Cluster, j *pd.Job) request {
	at := func(n uint64) draw.Value { return draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 80+n) }
	x := request{w: w, job: j, shape: drawShape(w.SourcePlan), isFixed: draw.IsFixed(w.Seed) || j.IsProbe()}
	maxBlocks := uint64(x.shape.blocks) * uint64(min(x.shape.kernelPerLogical[0], x.shape.kernelPerLogical[1]))
	if x.isFixed {
		x.promptBlocks, x.namesTransfer = min(maxBlocks, uint64(max(x.shape.kernelPerLogical[0], x.shape.kernelPerLogical[1]))), true
		x.computedBlocks, x.window, x.omittedGroup = x.promptBlocks, [2]uint64{x.promptBlocks, x.promptBlocks}, -1
		return x
	}
	x.promptBlocks = uint64(at(0).Between(1, int(maxBlocks)))
	if per := uint64(x.shape.kernelPerLogical[0]); at(1).ChancePermille(400) { // Whole blocks of the consumer's are cached.
		x.cachedBlocks = at(2).Below(x.promptBlocks) / per * per
	}
	x.computedBlocks = x.promptBlocks
	if d := at(8); d.ChancePermille(250) {
		x.computedBlocks += d.Rehash().Below(maxBlocks - x.promptBlocks + 1)
	} else if d.Rehash().ChancePermille(60) {
		x.computedBlocks -= d.Rehash().Rehash().Below(x.promptBlocks)
	}
	x.window[0] = uint64(at(9).Between(1, int(x.promptBlocks)))
	x.window[1] = x.window[0] + 1 + at(10).Below(x.promptBlocks)
	if x.omittedGroup = -1; x.shape.groups > 1 && at(11).ChancePermille(250) {
		x.omittedGroup = int(at(12).Below(uint64(x.shape.groups)))
	}
	x.retries[0], x.retries[1] = at(13).ChancePermille(200), at(14).ChancePermille(200)
	x.namesTransfer, x.sharesName, x.sendsExpect = at(3).ChancePermille(500), at(4).ChancePermille(150), at(5).ChancePermille(300)
	switch d := at(6); {
	case d.ChancePermille(80):
		x.fate = fateNotNeeded
	case d.Rehash().ChancePermille(100):
		x.fate = fateAborted
	case d.Rehash().Rehash().ChancePermille(80):
		x.fate = fateProducerOnly + fate(at(7).Below(2))
	}
	return x
}

// requestNames returns the names that a side uses for the request.
func (x *request) requestNames(consumer bool) (request, transfer []byte) {
	number := x.job.Index
	if x.sharesName {
		number = x.job.Index / 2
	}
	request = append(append([]byte("cmpl-"), x.job.Name...), "-0"...)
	if x.sharesName {
		request = pd.AppendNumber([]byte("cmpl-like-"), number)
	}
	end := x.job.Index * 2
	if !consumer {
		end++
	}
	request = append(request, '-')
	for digit := 7; digit >= 0; digit-- {
		request = append(request, "0123456789abcdef"[end>>(4*digit)&15])
	}
	if x.namesTransfer {
		transfer = append([]byte("t-"), x.job.Name...)
	}
	return request, transfer
}

// drawDelay draws the delay of an engine's action after the request was dispatched.
func (x *request) drawDelay(n uint64, mean effects.Duration) effects.Duration {
	if x.isFixed {
		return 0
	}
	return draw.Hash(x.w.Seed, draw.Engine, uint64(x.job.Index)<<8|n, 90).HeavyTail(mean)
}

// The kinds of the delayed actions of an engine.
const (
	actionRegister = iota
	actionFinished
	actionAborted
)

// startJob dispatches a request. A router that gets a late or bad reply may dispatch the request again.
func startJob(w *pd.Cluster, j *pd.Job) {
	x := drawRequest(w, j)
	for _, n := range w.Nodes[:w.RankCount] {
		if !n.Up {
			continue
		}
		x.dispatchTo(n, 0)
		side := 1
		if x.shape.isConsumer(n.ID) {
			side = 0
		}
		if x.retries[side] { // To all ranks of an engine.
			x.dispatchTo(n, x.drawDelay(uint64(200+side), 400*effects.Millisecond))
		}
	}
}

// dispatchTo makes the engine of a rank begin a request after a delay.
func (x *request) dispatchTo(n *world.Node, after effects.Duration) {
	w, j := x.w, x.job
	switch {
	case x.shape.isConsumer(n.ID) && x.fate == fateProducerOnly || !x.shape.isConsumer(n.ID) && x.fate == fateConsumerOnly:
	case x.shape.isConsumer(n.ID):
		if x.sendsExpect && x.fate == fateWritten && after == 0 {
			x.giveExpect(n)
		}
		pd.ContinueLater(w, n, j, actionRegister, after+x.drawDelay(uint64(n.ID), 30*effects.Millisecond))
	case x.fate == fateAborted && draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 77).ChancePermille(500):
		pd.ContinueLater(w, n, j, actionAborted, after+x.drawDelay(uint64(n.ID), 50*effects.Millisecond))
	default:
		delay := after + x.drawDelay(99, 60*effects.Millisecond) // All ranks compute together.
		pd.ContinueLater(w, n, j, actionFinished, delay+x.drawDelay(uint64(n.ID), effects.Millisecond))
		if x.fate == fateAborted {
			pd.ContinueLater(w, n, j, actionAborted, delay+x.drawDelay(uint64(n.ID)+100, 20*effects.Millisecond))
		}
	}
}

// continueJob performs a delayed action of a node's engine for a request.
func continueJob(w *pd.Cluster, n *world.Node, j *pd.Job, action int) {
	if !n.Up {
		return
	}
	x := drawRequest(w, j)
	request, transfer := x.requestNames(x.shape.isConsumer(n.ID))
	switch action {
	case actionAborted:
		w.GiveCommand(n, pd.Command{Kind: wantAborted, Job: j.Index, Body: &ops.Aborted{Request: request, Transfer: transfer}}, 0)
	case actionFinished:
		x.giveFinished(n)
	case actionRegister:
		if x.fate == fateNotNeeded {
			w.GiveCommand(n, pd.Command{Kind: wantNotNeeded, Job: j.Index, Body: &ops.NotNeeded{
				Request: request, Transfer: transfer, Producers: x.producerPeers(n), Timeout: pd.InfoOf(n).Cfg.PutTimeout,
			}}, pd.InfoOf(n).Cfg.PutTimeout)
			return
		}
		x.giveRegister(n)
	}
}

// producerPeers returns the addresses of the producers of a consumer's rank.
func (x *request) producerPeers(n *world.Node) (all []ops.Peer) {
	for _, id := range x.shape.producersOf(pd.InfoOf(n).Cfg.Geometry) {
		p := x.w.Nodes[id]
		all = append(all, ops.Peer{
			Host: p.Addr(effects.ChannelInit).Host, InitPort: p.Addr(effects.ChannelInit).Port,
			Port: p.Addr(effects.ChannelRegister).Port,
		})
	}
	return all
}

// giveExpect announces a request to the rank of the consumer before the registration.
func (x *request) giveExpect(n *world.Node) {
	request, transfer := x.requestNames(true)
	timeout := pd.InfoOf(n).Cfg.PutTimeout
	t := x.w.GiveCommand(n, pd.Command{Kind: wantExpect, Job: x.job.Index, Body: &ops.Expect{
		Request: request, Transfer: transfer, Producers: x.producerPeers(n), Timeout: timeout,
	}}, timeout)
	x.w.MaybeAbort(n, t)
}

// takeBlocks takes free blocks of a node for a request, by group. The result is nil if there are too few.
func (x *request) takeBlocks(n *world.Node, consumes bool) (all []geometry.Blocks) {
	first, end, window := uint64(0), x.computedBlocks, x.window[1]
	if consumes {
		first, end, window = x.cachedBlocks, x.promptBlocks, x.window[0]
	}
	for group := range x.shape.groups {
		if consumes && x.omittedGroup == int(group) {
			continue
		}
		if group > 0 && x.promptBlocks > window {
			first = max(first, x.promptBlocks-window)
		}
		if first >= end {
			continue
		}
		b, enough := x.takeRange(n, uint16(group), first, end)
		if !enough {
			return nil
		}
		all = append(all, b)
	}
	return all
}

// takeRange takes free blocks of a group of a node for a range of kernel blocks, and reports whether there were enough.
func (x *request) takeRange(n *world.Node, group uint16, first, end uint64) (b geometry.Blocks, enough bool) {
	per := uint64(x.shape.kernelPerLogicalOf(n.ID))
	used := make([]bool, x.shape.blocks)
	for i := range x.w.Commands {
		c := &x.w.Commands[i]
		if c.Node == n.ID && c.Incarnation == n.Incarnation && !c.HasMemoryBack() {
			for _, b := range lentBlocks(c) {
				for _, l := range b.Logical {
					used[l] = used[l] || b.Group == group
				}
			}
		}
	}
	b = geometry.Blocks{Group: group, First: first / per * per, End: end}
	for l := uint32(0); l < x.shape.blocks && b.First+uint64(len(b.Logical))*per < end; l++ {
		// Each job starts at a different block.
		if at := (l + uint32(x.job.Index)) % x.shape.blocks; !used[at] {
			b.Logical = append(b.Logical, at)
		}
	}
	return b, b.First+uint64(len(b.Logical))*per >= end
}

// lentBlocks returns the blocks that a command lends.
func lentBlocks(c *pd.Command) []geometry.Blocks {
	switch b := c.Body.(type) {
	case *ops.Register:
		return b.Blocks
	case *ops.Finished:
		return b.Blocks
	}
	return nil
}

// giveRegister clears blocks of a consumer's rank and registers them with the producer.
func (x *request) giveRegister(n *world.Node) {
	blocks := x.takeBlocks(n, true)
	if len(blocks) == 0 {
		return
	}
	request, transfer := x.requestNames(true)
	visitCells(n, blocks, func(p *world.Page, _, _ uint32, _ uint64) { p.Stamps = [world.Parts]world.Stamp{} })
	timeout := pd.InfoOf(n).Cfg.PutTimeout
	t := x.w.GiveCommand(n, pd.Command{Kind: wantRegister, Job: x.job.Index, Body: &ops.Register{
		Request: request, Transfer: transfer, Engine: []byte("P"), Producers: x.producerPeers(n), Ranks: x.shape.ranks,
		Stages: x.shape.stages, Blocks: blocks, Timeout: timeout,
	}}, timeout)
	x.w.MaybeAbort(n, t)
}

// giveFinished fills blocks of a producer's rank and reports the request as finished.
func (x *request) giveFinished(n *world.Node) {
	blocks := x.takeBlocks(n, false)
	if len(blocks) == 0 || x.isLending(n) {
		return
	}
	request, transfer := x.requestNames(false)
	fill := x.w.NewFill()
	visitCells(n, blocks, func(p *world.Page, layer, head uint32, position uint64) {
		for part := range p.Stamps {
			p.Stamps[part] = world.MakeStamp(x.cellKey(layer, head, position), fill<<5, part)
		}
	})
	t := x.w.GiveCommand(n, pd.Command{Kind: wantFinished, Job: x.job.Index, Count: fill, Body: &ops.Finished{
		Request: request, Transfer: transfer, Blocks: blocks,
	}}, max(pd.InfoOf(n).Cfg.RegistrationLease, pd.InfoOf(n).Cfg.ReadLeaseMax))
	x.w.MaybeAbort(n, t)
}

// isLending reports whether a node's engine already lends blocks of the request. An engine uses no name twice at a
// time.
func (x *request) isLending(n *world.Node) bool {
	for i := range x.w.Commands {
		if c := &x.w.Commands[i]; c.Kind == wantFinished && c.Job == x.job.Index && c.Node == n.ID && c.Incarnation == n.Incarnation &&
			!c.Finished {
			return true
		}
	}
	return false
}

// cellKey returns the expected content of a cell of a request.
func (x *request) cellKey(layer, head uint32, position uint64) uint32 {
	return makeCellKey(x.job.Index, layer, head, position)
}

// makeCellKey returns the content of a cell of a job.
func makeCellKey(job int, layer, head uint32, position uint64) uint32 {
	return uint32(job+1)<<14 | layer<<10 | head<<6 | uint32(position)
}

// isExpectedKey reports whether the content of a cell belongs to the request. If two requests have names that differ
// only at their ends and the router named no transfer, the content of either request is valid.
func (x *request) isExpectedKey(key, layer, head uint32, position uint64) bool {
	return key == x.cellKey(layer, head, position) ||
		x.sharesName && !x.namesTransfer && key == makeCellKey(x.job.Index^1, layer, head, position)
}

// visitCells visits the pages of some blocks of a node, up to the end of the blocks.
func visitCells(n *world.Node, blocks []geometry.Blocks, visit func(p *world.Page, layer, head uint32, position uint64)) {
	g := pd.InfoOf(n).Cfg.Geometry
	for _, b := range blocks {
		for i, logical := range b.Logical {
			for k := range g.PerLogical {
				position := b.First + uint64(i)*uint64(g.PerLogical) + uint64(k)
				if b.End != 0 && position >= b.End {
					continue
				}
				for region, x := range g.Layers {
					if x.Group != b.Group {
						continue
					}
					for share := range g.SharesPerBlock() {
						head := share
						if g.Heads > 0 {
							head += firstHead(g)
						}
						visit(&n.Pool.Pages[g.PageNumber(uint32(region), logical*g.PerLogical+k, share)], x.Number, head, position)
					}
				}
			}
		}
	}
}

// handleOutcome handles the outcome of a command that lends blocks.
func handleOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if c.Kind == wantFinished {
		checkLeaseTime(w, n, c, e.Why)
		checkNotNeededLease(w, n, c, e)
	}
	if c.Kind == wantRegister && e.Code == effects.OK {
		checkWritten(w, n, c)
		w.Jobs[c.Job].SetServed(allRegistered(w, c.Job))
	}
	if !e.Held && w.Failure == nil {
		handleReturn(w, n, c)
	}
}

// allRegistered reports whether each rank of the consumer has the registered blocks of a job.
func allRegistered(w *pd.Cluster, job int) bool {
	s := drawShape(w.SourcePlan)
	registered := uint32(0)
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Kind == wantRegister && c.Job == job && c.Finished && c.Code == effects.OK {
			registered++
		}
	}
	return registered >= s.consumers
}

// findLender returns the ticket of the command by which an engine lends a page.
func findLender(w *pd.Cluster, n *world.Node, page uint32) (t effects.Ticket) {
	for i := range w.Commands {
		c := &w.Commands[i]
		if c.Node != n.ID || c.Incarnation != n.Incarnation || c.HasMemoryBack() {
			continue
		}
		visitCells(n, lentBlocks(c), func(p *world.Page, _, _ uint32, _ uint64) {
			if p == &n.Pool.Pages[page] {
				t = effects.Ticket(i + 1)
			}
		})
	}
	return t
}

// handleReturn makes the engine use the returned blocks for other content at once.
func handleReturn(w *pd.Cluster, n *world.Node, c *pd.Command) {
	checkUntouched(w, n, c)
	for i := range n.Pool.Pages {
		p := &n.Pool.Pages[i]
		if p.Reserved != 0 && &w.Commands[p.Reserved-1] == c {
			p.Reserved = 0
			n.Pool.UpdateInUse(uint32(i))
		}
	}
	visitCells(n, lentBlocks(c), func(p *world.Page, _, _ uint32, _ uint64) { p.Stamps = [world.Parts]world.Stamp{} })
}
