package gateway

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// ranksLimit is the largest number of ranks of a simulated plain engine.
const ranksLimit = 4

// blocksLeast is the least limit on the blocks of a registration with which every request fits. The same limit applies to
// the generations of the pages that the rank grants.
const blocksLeast = layerCount * positionCount * ranksLimit

// A shape says how the KV cache of a run is divided, and has the settings of the gateway that items of the plan state.
// Each setting has an item of its own, so that a plan without it reads as the plans did before the setting was drawn.
type shape struct {
	heads, cellHeads uint32    // of the model, and of a page
	ranks            [7]uint32 // by node; the node of kvferry has one rank, and so has the stranger

	ranksMax, triesMax  int
	window              uint16
	registrationTimeout effects.Duration
	rankTimeout         effects.Duration // how long the rank lets a registration wait
	blocksMax           int              // of a registration
}

// The items that state a setting. Their commands end at once.
const (
	itemHeads    = "heads"
	itemCell     = "cell heads"
	itemRanks    = "ranks"
	itemRanksMax = "ranks max"
	itemTries    = "tries max"
	itemWindow   = "window"
	itemTimeout  = "registration timeout"
	itemBlocks   = "blocks max"
)

var settingItems = []string{itemHeads, itemCell, itemRanks, itemRanksMax, itemTries, itemWindow, itemTimeout, itemBlocks}

// A settingBody is the command of an item that states a setting.
type settingBody struct{}

func (*settingBody) IsCommand() {}

// shapeOf reads the shape of a plan. Values that nothing could run with are replaced by the nearest that are possible,
// because a plan that fails is shrunk.
func shapeOf(p *plan.Plan) (s shape) {
	s = shape{heads: 1, cellHeads: 1, ranksMax: 2, triesMax: 3, window: 8, registrationTimeout: 5 * effects.Second,
		rankTimeout: 5 * effects.Second, blocksMax: protocol.DefaultLimits().BlockCount}
	for i := range s.ranks {
		s.ranks[i] = 1
	}
	if w := worldOf(p); w != nil {
		s.ranks[firstProducer], s.ranks[firstConsumer] = max(1, w.producerRanks), max(1, w.consumerRanks)
	}
	for i := range p.Items {
		x := &p.Items[i]
		switch x.Do {
		case itemHeads:
			s.heads = powerOfTwo(x.Number)
		case itemCell:
			s.cellHeads = powerOfTwo(x.Number)
		case itemRanks:
			if x.Node > hostNode && x.Node != strangerNode && int(x.Node) < len(s.ranks) {
				s.ranks[x.Node] = powerOfTwo(x.Number)
			}
		case itemRanksMax:
			s.ranksMax = int(max(1, x.Number))
		case itemTries:
			s.triesMax = int(max(1, x.Number))
		case itemWindow:
			s.window = uint16(max(1, x.Number))
		case itemTimeout:
			s.registrationTimeout = effects.Duration(max(time.Second, x.Span))
			s.rankTimeout = 2 * s.registrationTimeout // So that the rank's limit does not hide the gateway's.
		case itemBlocks:
			s.blocksMax = int(max(blocksLeast, x.Number))
		}
	}
	s.cellHeads = min(s.cellHeads, s.heads)
	return s
}

// powerOfTwo returns the largest power of two up to n and ranksLimit.
func powerOfTwo(n uint32) uint32 {
	k := uint32(1)
	for 2*k <= min(n, ranksLimit) {
		k *= 2
	}
	return k
}

// drawShape draws the items that state settings. Half of the runs have engines of one rank and one head.
func drawShape(d custom.Draws, p *plan.Plan) {
	add := func(do string, node plan.Node, number uint64, span time.Duration) {
		p.Items = append(p.Items, plan.Item{Do: do, Node: node, Number: uint32(number), Span: span})
	}
	if d.NumberBelow("shaped", 0, 2) == 0 {
		heads := uint64(1) << d.NumberBelow("shaped", 1, 3)
		add(itemHeads, hostNode, heads, 0)
		add(itemCell, hostNode, 1+d.NumberBelow("shaped", 2, 2), 0)
		for i := range uint64(len(producers) + len(consumers)) {
			add(itemRanks, firstProducer+plan.Node(i), uint64(1)<<d.NumberBelow("ranks", i, 3), 0)
		}
		add(itemRanks, thirdNode, uint64(1)<<d.NumberBelow("ranks", 9, 3), 0)
	}
	add(itemRanksMax, hostNode, uint64([]int{1, 2, 4, 4}[d.NumberBelow("ranks max", 0, 4)]), 0)
	add(itemTries, hostNode, 1+d.NumberBelow("tries max", 0, 4), 0)
	add(itemWindow, hostNode, 1+d.NumberBelow("window", 0, 8), 0)
	add(itemTimeout, hostNode, 0, d.Duration("registration timeout", 0, 3*time.Second, 8*time.Second))
	if d.NumberBelow("blocks max", 0, 2) == 0 {
		add(itemBlocks, hostNode, blocksLeast+d.NumberBelow("blocks max", 1, 3), 0)
	}
}

// engineNode returns the node of a plain engine.
func engineNode(name string) plan.Node {
	if i := slices.Index(producers, name); i >= 0 {
		return firstProducer + plan.Node(i)
	}
	if i := slices.Index(consumers, name); i >= 0 {
		return firstConsumer + plan.Node(i)
	}
	if name == thirdConsumer {
		return thirdNode
	}
	return hostNode
}

// ranksOf returns the number of ranks of an engine. A stranger has one.
func (s *shape) ranksOf(engine string) uint32 { return s.ranks[engineNode(engine)] }

// headsOf returns the number of heads of each rank of an engine.
func (s *shape) headsOf(engine string) uint32 { return max(1, s.heads/s.ranksOf(engine)) }

// sharesOf returns the number of pages that a rank of an engine has for a block of a layer. A page that has more heads
// than the rank counts as one: such an engine does not fit.
func (s *shape) sharesOf(engine string) uint32 { return max(1, s.headsOf(engine)/s.cellHeads) }

// isFit reports whether the pages of an engine and those of the node are alike.
func (s *shape) isFit(engine string) bool { return s.headsOf(engine)%s.cellHeads == 0 }

// isServed reports whether the gateway exchanges data with an engine that behaves.
func (s *shape) isServed(engine string) bool {
	return s.isFit(engine) && int(s.ranksOf(engine)) <= s.ranksMax
}

// firstCell returns the number of the first cell that a rank of an engine has, in the whole model.
func (s *shape) firstCell(engine string, rank uint32) uint32 {
	return rank * s.heads / s.ranksOf(engine) / s.cellHeads
}

// isWriter reports whether a rank of a producer writes: of ranks with the same heads only the first does.
func (s *shape) isWriter(engine string, rank uint32) bool {
	n := s.ranksOf(engine)
	return rank == 0 || rank*s.heads/n != (rank-1)*s.heads/n
}

// moreRanks returns the number of ranks of some engines, without the first of each.
func (s *shape) moreRanks(engines []string) (n int) {
	for _, name := range engines {
		n += int(s.ranksOf(name)) - 1
	}
	return n
}

// ranksOfThird returns the number of ranks of the third consumer, if it wants anything.
func (s *shape) ranksOfThird(p *plan.Plan) int {
	if !slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Node == thirdNode && x.Do == "want" }) {
		return 0
	}
	return int(s.ranks[thirdNode])
}
