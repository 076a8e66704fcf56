package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/geometry"
	ops "github.com/kvferry/kvferry/fsm/register"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Two engines and the router before them. A request is dispatched to both: the producer computes it, all of its ranks
// at about the same time, and says so; the consumer has blocks for what it has not cached, and registers them. Some
// requests are dispatched to one alone, some are aborted at either, some are cached whole. An engine has blocks of its
// own, and uses one for another request as soon as it is its own again: it fills them at once, so that whatever is
// written late, or read late, is seen.

// A request is what becomes of one job.
type request struct {
	w        *pd.Cluster
	j        *pd.Job
	s        shape
	simple   bool // nothing is drawn
	prompt   uint64
	cached   [2]uint64 // kernel blocks of a group, of both engines, that the consumer has
	wants    [2]bool   // groups that it registers
	computed [2]bool   // and that its producer has
	named    bool      // the router named the transfer
	alike    bool      // and its name is like another request's but for the end
	expected bool
	fate     fate
}

type fate uint8

const (
	written fate = iota
	passed       // the consumer has all of it
	aborted      // by the producer's engine, before or after it was computed
	onlyP
	onlyD
)

func requestOf(w *pd.Cluster, j *pd.Job) request {
	at := func(n uint64) draw.Of { return draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 80+n) }
	x := request{w: w, j: j, s: shapeOf(w.Source), simple: w.Seed >= draw.RestlessSeed || j.Probes()}
	most := uint64(x.s.blocks) * uint64(min(x.s.per[0], x.s.per[1]))
	x.wants, x.computed = [2]bool{true, true}, [2]bool{true, true}
	if x.simple {
		x.prompt, x.named = min(most, uint64(max(x.s.per[0], x.s.per[1]))), true
		return x
	}
	x.prompt = uint64(at(0).Between(1, int(most)))
	if per := uint64(x.s.per[0]); at(1).Permille(400) { // Whole blocks of the consumer's are cached.
		for i := range x.cached {
			x.cached[i] = at(2+7*uint64(i)).Below(x.prompt) / per * per
		}
	}
	if x.s.groups > 1 {
		if d := at(10); d.Permille(400) { // The consumer has all of one group.
			x.wants[d.Again().Below(2)] = false
		}
		if d := at(11); d.Permille(150) { // Or its producer has none of it, which may be what was wanted.
			x.computed[d.Again().Below(2)] = false
		}
	}
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

// names are what a side calls the request.
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

// in is when an engine does something, from when the request was dispatched.
func (x *request) in(n uint64, mean effects.Duration) effects.Duration {
	if x.simple {
		return 0
	}
	return draw.Hash(x.w.Seed, draw.Engine, uint64(x.j.Place)<<8|n, 90).Heavy(mean)
}

// Places at which an engine goes on later: kinds, beside the node.
const (
	placeRegister = iota
	placeFinished
	placeAborted
)

// start dispatches a request.
func start(w *pd.Cluster, j *pd.Job) {
	x := requestOf(w, j)
	for _, n := range w.Nodes[:w.Ranks] {
		if !n.Up {
			continue
		}
		switch {
		case x.s.consumes(n.ID) && x.fate == onlyP || !x.s.consumes(n.ID) && x.fate == onlyD:
		case x.s.consumes(n.ID):
			if x.expected && x.fate == written {
				x.expect(n)
			}
			pd.Later(w, n, j, placeRegister, x.in(uint64(n.ID), 30*effects.Millisecond))
		case x.fate == aborted && draw.Hash(w.Seed, draw.Engine, uint64(j.Place), 77).Permille(500):
			pd.Later(w, n, j, placeAborted, x.in(uint64(n.ID), 50*effects.Millisecond))
		default:
			in := x.in(99, 60*effects.Millisecond) // All ranks compute together.
			pd.Later(w, n, j, placeFinished, in+x.in(uint64(n.ID), effects.Millisecond))
			if x.fate == aborted {
				pd.Later(w, n, j, placeAborted, in+x.in(uint64(n.ID)+100, 20*effects.Millisecond))
			}
		}
	}
}

// later goes on with what a node's engine does for a request.
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

// peers are where a consumer's rank finds its producers.
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

func (x *request) expect(n *world.Node) {
	request, transfer := x.names(true)
	patience := pd.Its(n).Cfg.PutTimeout
	t := x.w.Give(n, pd.Command{Want: expects, Job: x.j.Place, Body: &ops.Expect{
		Request: request, Transfer: transfer, Producers: x.peers(n), Patience: patience,
	}}, patience)
	x.w.MaybeAbort(n, t)
}

// blocks takes free ones of a node's for a stretch of kernel blocks of each of some groups; none if there are too few.
func (x *request) blocks(n *world.Node, of [2]bool, first [2]uint64, end uint64) (lists []geometry.Blocks) {
	per := uint64(x.s.perOf(n.ID))
	for group := range x.s.groups {
		if !of[group] {
			continue
		}
		used := make([]bool, x.s.blocks)
		for i := range x.w.Commands {
			c := &x.w.Commands[i]
			if c.Node == n.ID && c.Life == n.Life && !c.Ended() {
				for _, b := range blocksOf(c) {
					for _, l := range b.Logical {
						used[l] = used[l] || uint32(b.Group) == group
					}
				}
			}
		}
		b := geometry.Blocks{Group: uint16(group), First: first[group] / per * per, End: end}
		for l := uint32(0); l < x.s.blocks && b.First+uint64(len(b.Logical))*per < end; l++ {
			// From another one each time.
			if at := (l + uint32(x.j.Place)) % x.s.blocks; !used[at] {
				b.Logical = append(b.Logical, at)
			}
		}
		if b.First+uint64(len(b.Logical))*per < end {
			return nil
		}
		lists = append(lists, b)
	}
	return lists
}

// blocksOf are those that a command lends.
func blocksOf(c *pd.Command) []geometry.Blocks {
	switch b := c.Body.(type) {
	case *ops.Register:
		return b.Blocks
	case *ops.Finished:
		return b.Blocks
	}
	return nil
}

func (x *request) register(n *world.Node) {
	blocks := x.blocks(n, x.wants, x.cached, x.prompt)
	if blocks == nil {
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

func (x *request) finished(n *world.Node) {
	blocks := x.blocks(n, x.computed, [2]uint64{}, x.prompt)
	if blocks == nil {
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

// key is what a cell of a request holds.
func (x *request) key(layer, head uint32, position uint64) uint32 {
	return keyOf(x.j.Place, layer, head, position)
}

func keyOf(job int, layer, head uint32, position uint64) uint32 {
	return uint32(job+1)<<14 | layer<<10 | head<<6 | uint32(position)
}

// means says whether a cell's content is that of a request, as far as names tell: where two have names that are alike
// but for their ends, and the router named no transfer, nobody knows which of them is meant.
func (x *request) means(key, layer, head uint32, position uint64) bool {
	return key == x.key(layer, head, position) ||
		x.alike && !x.named && key == keyOf(x.j.Place^1, layer, head, position)
}

// cells visits the pages of some blocks of a node's, up to their end.
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
					for share := range g.Shares() {
						head := share
						if g.Heads > 0 {
							head += firstHead(g)
						}
						visit(&n.Pool.Pages[g.Page(uint32(region), logical*g.PerLogical+k, share)], x.Number, head, position)
					}
				}
			}
		}
	}
}

// ended takes the outcome of a command that lends blocks.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if c.Want == finishes {
		lease(w, n, c, e.Why)
	}
	if c.Want == registers && e.Code == effects.OK {
		came(w, n, c)
		w.Jobs[c.Job].Serve(all(w, c.Job))
	}
	if !e.Held && w.Failure == nil {
		returned(w, n, c)
	}
}

// all says whether each rank of the consumer's has what it registered for a job.
func all(w *pd.Cluster, job int) bool {
	s := shapeOf(w.Source)
	had := uint32(0)
	for i := range w.Commands {
		if c := &w.Commands[i]; c.Want == registers && c.Job == job && c.Over && c.Code == effects.OK {
			had++
		}
	}
	return had == s.consumers
}

// lender is the command by which an engine lends a page.
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

// returned has the engine use its blocks for something else at once.
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

var _ = plan.Nobody
