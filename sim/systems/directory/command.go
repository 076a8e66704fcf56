package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The commands that engines give to workers.
type (
	admit   struct{ chunks []uint64 } // add these chunks
	evict   struct{ chunks []uint64 } // remove these chunks
	lookup  struct{ chunks []uint64 } // ask the directories which workers have these chunks
	settled struct{ lookup }          // a lookup after the faults, when replies must be right
	leave   struct{}                  // leave the directories until the next incarnation
)

// factSettled observes that the final lookups have begun. The ID is the time at which the faults ended. The Count is
// firstStays if a directory never gives up a worker as silent during the run, so that a mistaken belief can last.
const (
	factSettled = effects.FactOther
	firstStays  = 1
)

func (*admit) IsCommand()   {}
func (*evict) IsCommand()   {}
func (*lookup) IsCommand()  {}
func (*settled) IsCommand() {}
func (*leave) IsCommand()   {}

// The chunks belong to a few prompts. A worker that has a chunk usually has the earlier chunks of the prompt as well.
const (
	prompts  = 3
	ofPrompt = 5
)

// A further prompt has more chunks than a 64-bit word has bits, so that the directory needs several words to mark the
// batches of a full sync that have arrived. Few plans use the prompt.
const (
	long   = 1000 // number of the plan items about this prompt
	ofLong = 80
)

// isLong reports whether a plan uses the long prompt.
func isLong(p *plan.Plan) bool {
	return p.System == systemName && draw.Hash(p.Seed, draw.Plan, 8, 5).Permille(60)
}

// first returns the first n chunks of a prompt.
func first(prompt uint32, n int) (all []uint64) {
	for k := range n {
		all = append(all, uint64(prompt)<<8|uint64(k)|1<<16)
	}
	return all
}

// admits creates the command of an item. The item's number selects a prompt and how many of its chunks to add.
func admits(x plan.Item) effects.CommandBody {
	if x.Number == long {
		return &admit{first(prompts, ofLong)}
	}
	return &admit{first(x.Number%prompts, 1+int(x.Number/prompts)%ofPrompt)}
}

// evicts creates a command that removes the last chunks of a prompt, or sometimes only the first chunk.
func evicts(x plan.Item) effects.CommandBody {
	all := first(x.Number%prompts, ofPrompt)
	if x.Number >= 80 {
		return &evict{all[:1]}
	}
	return &evict{all[int(x.Number/prompts)%ofPrompt:]}
}

func looks(x plan.Item) effects.CommandBody {
	if x.Number == long {
		return &lookup{first(prompts, ofLong)}
	}
	return &lookup{first(x.Number%prompts, ofPrompt)}
}

func settles(x plan.Item) effects.CommandBody { return &settled{*looks(x).(*lookup)} }

func leaves(plan.Item) effects.CommandBody { return &leave{} }
