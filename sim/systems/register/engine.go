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
	w        *pd.Cluster
	j        *pd.Job
	s        shape
	simple   bool // nothing is drawn
	prompt   uint64
	cached   uint64 // kernel blocks of the prompt that the consumer has cached
	computed uint64 // kernel blocks that the producer has, which may be more or fewer than the consumer needs
	// With two groups, the second covers only the end of the prompt, on either side, and a group may be left out.
	window   [2]uint64 // kernel blocks from the end of the prompt, by side
	leftOut  int       // group that the consumer leaves out; -1 if none
	again    [2]bool   // the router retries under the same names, by side
	named    bool      // the router named the transfer
	alike    bool      // the name equals that of another request except for the end
	expected bool
	fate     fate
}

// A fate is what happens to a request.
type fate uint8

const (
	written fate = iota
	passed       // the consumer has all blocks of the request
	aborted      // by the producer's engine, before or after it was computed
	onlyP        // dispatched to the producer only
	onlyD        // dispatched to the consumer only
)

// requestOf draws the request of a job.
func requestOf(w *pd.Cluster, j *pd.Job) request {
	at := func(n uint64) draw.Of { return draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 80+n) }
	x := request{w: w, j: j, s: shapeOf(w.Source), simple: w.Seed >= draw.RestlessSeed || j.Probes()}
	most := uint64(x.s.blocks) * uint64(min(x.s.per[0], x.s.per[1]))
	if x.simple {
		x.prompt, x.named = min(most, uint64(max(x.s.per[0], x.s.per[1]))), true
		x.computed, x.window, x.leftOut = x.prompt, [2]uint64{x.prompt, x.prompt}, -1
		return x
	}
	x.prompt = uint64(at(0).Between(1, int(most)))
	if per := uint64(x.s.per[0]); at(1).Permille(400) { // Whole blocks of the consumer's are cached.
		x.cached = at(2).Below(x.prompt) / per * per
	}
	x.computed = x.prompt
	if d := at(8); d.Permille(250) {
		x.computed += d.Again().Below(most - x.prompt + 1)
	} else if d.Again().Permille(60) {
		x.computed -= d.Again().Again().Below(x.prompt)
	}
	x.window[0] = uint64(at(9).Between(1, int(x.prompt)))
	x.window[1] = x.window[0] + 1 + at(10).Below(x.prompt)
	if x.leftOut = -1; x.s.groups > 1 && at(11).Permille(250) {
		x.leftOut = int(at(12).Below(uint64(x.s.groups)))
	}
	x.again[0], x.again[1] = at(13).Permille(200), at(14).Permille(200)
	x.named, x.alike, x.expected = at(3).Permille(500), at(4).Permille(150), at(5).Permille(300)
	switch d := at(6); {
	case d.Permille(80):
		x.fate = passed
	case d.Again().Permille(100):
		x.fate = aborted
	case d.Again().Again().Permille(80):
		x.fate = onlyP + fate(at(7).Below(2))
	}
	return x
}

// names returns the names that a side uses for the request.
func (x *request) names(consumer bool) (request, transfer []byte) {
	number := x.j.Place
	if x.alike {
		number = x.j.Place / 2
	}
	request = append(append([]byte("cmpl-"), x.j.Name...), "-0"...)
	if x.alike {
		request = pd.AppendNumber([]byte("cmpl-like-"), number)
	}
	end := x.j.Place * 2
	if !consumer {
		end++
	}
	request = append(request, '-')
	for digit := 7; digit >= 0; digit-- {
		request = append(request, "0123456789abcdef"[end>>(4*digit)&15])
	}
	if x.named {
		transfer = append([]byte("t-"), x.j.Name...)
	}
	return request, transfer
}

// in draws the delay of an engine's action after the request was dispatched.
func (x *request) in(n uint64, mean effects.Duration) effects.Duration {
	if x.simple {
		return 0
	}
	return draw.Hash(x.w.Seed, draw.Engine, uint64(x.j.Place)<<8|n, 90).Heavy(mean)
}

// The kinds of the delayed actions of an engine.
const (
	placeRegister = iota
	placeFinished
	placeAborted
)

// start dispatches a request. A router that gets a late or bad reply may dispatch the request again.
func start(w *pd.Cluster, j *pd.Job) {
	x := requestOf(w, j)
	for _, n := range w.Nodes[:w.Ranks] {
		if !n.Up {
			continue
		}
		x.dispatch(n, 0)
		side := 1
		if x.s.consumes(n.ID) {
			side = 0
		}
		if x.again[side] { // To all ranks of an engine.
			x.dispatch(n, x.in(uint64(200+side), 400*effects.Millisecond))
		}
	}
}

// dispatch makes the engine of a rank begin a request after a delay.
func (x *request) dispatch(n *world.Node, after effects.Duration) {
	w, j := x.w, x.j
	switch {
	case x.s.consumes(n.ID) && x.fate == onlyP || !x.s.consumes(n.ID) && x.fate == onlyD:
	case x.s.consumes(n.ID):
		if x.expected && x.fate == written && after == 0 {
			x.expect(n)
		}
		pd.Later(w, n, j, placeRegister, after+x.in(uint64(n.ID), 30*effects.Millisecond))
	case x.fate == aborted && draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 77).Permille(500):
		pd.Later(w, n, j, placeAborted, after+x.in(uint64(n.ID), 50*effects.Millisecond))
	default:
		in := after + x.in(99, 60*effects.Millisecond) // All ranks compute together.
		pd.Later(w, n, j, placeFinished, in+x.in(uint64(n.ID), effects.Millisecond))
		if x.fate == aborted {
			pd.Later(w, n, j, placeAborted, in+x.in(uint64(n.ID)+100, 20*effects.Millisecond))
		}
	}
}

// later performs a delayed action of a node's engine for a request.
func later(w *pd.Cluster, n *world.Node, j *pd.Job, at int) {
	if !n.Up {
		return
	}
	x := requestOf(w, j)
	request, transfer := x.names(x.s.consumes(n.ID))
	switch at {
	case placeAborted:
		w.Give(n, pd.Command{Want: aborts, Job: j.Place, Body: &ops.Aborted{Request: request, Transfer: transfer}}, 0)
	case placeFinished:
		x.finished(n)
	case placeRegister:
		if x.fate == passed {
			w.Give(n, pd.Command{Want: passes, Job: j.Place, Body: &ops.NotNeeded{
				Request: request, Transfer: transfer, Producers: x.peers(n), Patience: pd.Its(n).Cfg.PutTimeout,
			}}, pd.Its(n).Cfg.PutTimeout)
			return
		}
		x.register(n)
	}
}

// peers returns the addresses of the producers of a consumer's rank.
func (x *request) peers(n *world.Node) (all []ops.Peer) {
	for _, id := range x.s.producers(pd.Its(n).Cfg.Geometry) {
		p := x.w.Nodes[id]
		all = append(all, ops.Peer{
			Host: p.Addr(effects.ChannelInit).Host, InitPort: p.Addr(effects.ChannelInit).Port,
			Port: p.Addr(effects.ChannelRegister).Port,
		})
	}
	return all
}

// expect announces a request to the rank of the consumer before the registration.
func (x *request) expect(n *world.Node) {
	request, transfer := x.names(true)
	patience := pd.Its(n).Cfg.PutTimeout
	t := x.w.Give(n, pd.Command{Want: expects, Job: x.j.Place, Body: &ops.Expect{
		Request: request, Transfer: transfer, Producers: x.peers(n), Patience: patience,
	}}, patience)
	x.w.MaybeAbort(n, t)
}

// blocks takes free blocks of a node for a request, by group. The result is nil if there are too few.
func (x *request) blocks(n *world.Node, consumes bool) (all []geometry.Blocks) {
	first, end, window := uint64(0), x.computed, x.window[1]
	if consumes {
		first, end, window = x.cached, x.prompt, x.window[0]
	}
	for group := range x.s.groups {
		if consumes && x.leftOut == int(group) {
			continue
		}
		if group > 0 && x.prompt > window {
			first = max(first, x.prompt-window)
		}
		if first >= end {
			continue
		}
		b, enough := x.stretch(n, uint16(group), first, end)
		if !enough {
			return nil
		}
		all = append(all, b)
	}
	return all
}

// stretch takes free blocks of a group of a node for a range of kernel blocks, and reports whether there were enough.
func (x *request) stretch(n *world.Node, group uint16, first, end uint64) (b geometry.Blocks, enough bool) {
	per := uint64(x.s.perOf(n.ID))
	used := make([]bool, x.s.blocks)
	for i := range x.w.Commands {
		c := &x.w.Commands[i]
		if c.Node == n.ID && c.Life == n.Life && !c.Ended() {
			for _, b := range blocksOf(c) {
				for _, l := range b.Logical {
					used[l] = used[l] || b.Group == group
				}
			}
		}
	}
	b = geometry.Blocks{Group: group, First: first / per * per, End: end}
	for l := uint32(0); l < x.s.blocks && b.First+uint64(len(b.Logical))*per < end; l++ {
		// Each job starts at a different block.
		if at := (l + uint32(x.j.Place)) % x.s.blocks; !used[at] {
			b.Logical = append(b.Logical, at)
		}
	}
	return b, b.First+uint64(len(b.Logical))*per >= end
}

// blocksOf returns the blocks that a command lends.
func blocksOf(c *pd.Command) []geometry.Blocks {
	switch b := c.Body.(type) {
	case *ops.Register:
		return b.Blocks
	case *ops.Finished:
		return b.Blocks
	}
	return nil
}

// register clears blocks of a consumer's rank and registers them with the producer.
func (x *request) register(n *world.Node) {
	blocks := x.blocks(n, true)
	if len(blocks) == 0 {
		return
	}
	request, transfer := x.names(true)
	cells(n, blocks, func(p *world.Page, _, _ uint32, _ uint64) { p.Stamps = [world.Parts]world.Stamp{} })
	patience := pd.Its(n).Cfg.PutTimeout
	t := x.w.Give(n, pd.Command{Want: registers, Job: x.j.Place, Body: &ops.Register{
		Request: request, Transfer: transfer, Engine: []byte("P"), Producers: x.peers(n), Ranks: x.s.ranks,
		Stages: x.s.stages, Blocks: blocks, Patience: patience,
	}}, patience)
	x.w.MaybeAbort(n, t)
}

// finished fills blocks of a producer's rank and reports the request as finished.
func (x *request) finished(n *world.Node) {
	blocks := x.blocks(n, false)
	if len(blocks) == 0 || x.lends(n) {
		return
	}
	request, transfer := x.names(false)
	fill := x.w.NewFill()
	cells(n, blocks, func(p *world.Page, layer, head uint32, position uint64) {
		for part := range p.Stamps {
			p.Stamps[part] = world.MakeStamp(x.key(layer, head, position), fill<<5, part)
		}
	})
	t := x.w.Give(n, pd.Command{Want: finishes, Job: x.j.Place, Count: fill, Body: &ops.Finished{
		Request: request, Transfer: transfer, Blocks: blocks,
	}}, max(pd.Its(n).Cfg.RegistrationLease, pd.Its(n).Cfg.ReadLeaseMax))
	x.w.MaybeAbort(n, t)
}

// lends reports whether a node's engine already lends blocks of the request. An engine uses no name twice at a time.
func (x *request) lends(n *world.Node) bool {
	for i := range x.w.Commands {
		if c := &x.w.Commands[i]; c.Want == finishes && c.Job == x.j.Place && c.Node == n.ID && c.Life == n.Life && !c.Over {
			return true
		}
	}
	return false
}

// key returns the expected content of a cell of a request.
func (x *request) key(layer, head uint32, position uint64) uint32 {
	return keyOf(x.j.Place, layer, head, position)
}

// keyOf returns the content of a cell of a job.
func keyOf(job int, layer, head uint32, position uint64) uint32 {
	return uint32(job+1)<<14 | layer<<10 | head<<6 | uint32(position)
}

// means reports whether the content of a cell belongs to the request. If two requests have names that differ only at
// their ends and the router named no transfer, the content of either request is valid.
func (x *request) means(key, layer, head uint32, position uint64) bool {
	return key == x.key(layer, head, position) ||
		x.alike && !x.named && key == keyOf(x.j.Place^1, layer, head, position)
}

// cells visits the pages of some blocks of a node, up to the end of the blocks.
func cells(n *world.Node, blocks []geometry.Blocks, visit func(p *world.Page, layer, head uint32, position uint64)) {
	g := pd.Its(n).Cfg.Geometry
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

// ended handles the outcome of a command that lends blocks.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if c.Want == finishes {
		lease(w, n, c, e.Why)
		needless(w, n, c, e)
	}
	if c.Want == registers && e.Code == effects.OK {
		came(w, n, c)
		w.Jobs[c.Job].Serve(all(w, c.Job))
	}
	if !e.Held && w.Failure == nil {
		returned(w, n, c)
	}
}

// all reports whether each rank of the consumer has the registered blocks of a job.
func all(w *pd.Cluster, job int) bool {
	s := shapeOf(w.Source)
	had := uint32(0)
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Want == registers && c.Job == job && c.Over && c.Code == effects.OK {
			had++
		}
	}
	return had >= s.consumers
}

// lender returns the ticket of the command by which an engine lends a page.
func lender(w *pd.Cluster, n *world.Node, page uint32) (t effects.Ticket) {
	for i := range w.Commands {
		c := &w.Commands[i]
		if c.Node != n.ID || c.Life != n.Life || c.Ended() {
			continue
		}
		cells(n, blocksOf(c), func(p *world.Page, _, _ uint32, _ uint64) {
			if p == &n.Pool.Pages[page] {
				t = effects.Ticket(i + 1)
			}
		})
	}
	return t
}

// returned makes the engine use the returned blocks for other content at once.
func returned(w *pd.Cluster, n *world.Node, c *pd.Command) {
	still(w, n, c)
	for i := range n.Pool.Pages {
		p := &n.Pool.Pages[i]
		if p.Reserved != 0 && &w.Commands[p.Reserved-1] == c {
			p.Reserved = 0
			n.Pool.Touch(uint32(i))
		}
	}
	cells(n, blocksOf(c), func(p *world.Page, _, _ uint32, _ uint64) { p.Stamps = [world.Parts]world.Stamp{} })
}
