package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// What workers are told to do.
type (
	admit   struct{ chunks []uint64 } // have these
	evict   struct{ chunks []uint64 } // have them no more
	lookup  struct{ chunks []uint64 } // ask who has them
	settled struct{ lookup }          // likewise, after all has come to rest
	leave   struct{}                  // be known no more, until another life
)

// factSettled says that all should be at rest by now, if the faults ended so long before as ID says. Its Count is
// firstStays where whom a directory believes it believes for the whole run.
const (
	factSettled = effects.FactOther
	firstStays  = 1
)

func (*admit) IsCommand()   {}
func (*evict) IsCommand()   {}
func (*lookup) IsCommand()  {}
func (*settled) IsCommand() {}
func (*leave) IsCommand()   {}

// Chunks are of a few prompts, each with the chunks before it.
const (
	prompts  = 3
	ofPrompt = 5
)

// One more prompt is longer than a word of bits, in which a directory notes what came of a sync. Few plans have it.
const (
	long   = 1000 // the number of items that are about it
	ofLong = 80
)

func isLong(p *plan.Plan) bool {
	return p.System == systemName && draw.Hash(p.Seed, draw.Plan, 8, 5).Permille(60)
}

// first are the first n chunks of a prompt.
func first(prompt uint32, n int) (all []uint64) {
	for k := range n {
		all = append(all, uint64(prompt)<<8|uint64(k)|1<<16)
	}
	return all
}

// An item's number says which prompt, and how much of it.
func admits(x plan.Item) effects.CommandBody {
	if x.Number == long {
		return &admit{first(prompts, ofLong)}
	}
	return &admit{first(x.Number%prompts, 1+int(x.Number/prompts)%ofPrompt)}
}

// evicts takes a prompt's tail, or now and then its first chunk.
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
