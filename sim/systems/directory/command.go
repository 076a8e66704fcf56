package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The commands that engines give to workers.
type (
	admitBody       struct{ chunks []uint64 } // add these chunks
	evictBody       struct{ chunks []uint64 } // remove these chunks
	lookupBody      struct{ chunks []uint64 } // ask the directories which workers have these chunks
	finalLookupBody struct{ lookupBody }      // a lookup after the faults, when replies must be right
	leaveBody       struct{}                  // leave the directories until the next incarnation
)

// factAtRest observes that the final lookups have begun. The ID is the time at which the faults ended. The Count is
// keepSilentWorkers if a directory never gives up a worker as silent during the run, so that a mistaken belief can last.
const (
	factAtRest        = effects.FactOther
	keepSilentWorkers = 1
)

func (*admitBody) IsCommand()       {}
func (*evictBody) IsCommand()       {}
func (*lookupBody) IsCommand()      {}
func (*finalLookupBody) IsCommand() {}
func (*leaveBody) IsCommand()       {}

// The chunks belong to a few prompts. A worker that has a chunk usually has the earlier chunks of the prompt as well.
const (
	promptCount     = 3
	chunksPerPrompt = 5
)

// A further prompt has more chunks than a 64-bit word has bits, so that the directory needs several words to mark the
// batches of a full sync that have arrived. Few plans use the prompt.
const (
	longPrompt       = 1000 // number of the plan items about this prompt
	longPromptChunks = 80
)

// hasLongPrompt reports whether a plan uses the long prompt.
func hasLongPrompt(p *plan.Plan) bool {
	return p.System == systemName && draw.Hash(p.Seed, draw.Plan, 8, 5).ChancePermille(150)
}

// longPromptLength returns how many chunks of the long prompt a worker adds: about as many as the directory looks up at a
// time, or twice as many, or all.
func longPromptLength(p *plan.Plan, worker int) uint32 {
	lengths := []uint32{31, 32, 33, 63, 64, 65, longPromptChunks, longPromptChunks}
	return lengths[draw.Hash(p.Seed, draw.Plan, 8, 101+uint64(worker)).Below(uint64(len(lengths)))]
}

// promptChunks returns the first n chunks of a prompt.
func promptChunks(prompt uint32, n int) (all []uint64) {
	for k := range n {
		all = append(all, uint64(prompt)<<8|uint64(k)|1<<16)
	}
	return all
}

// newAdmit creates the command of an item. The item's number selects a prompt and how many of its chunks to add.
func newAdmit(x plan.Item) effects.CommandBody {
	if x.Number >= longPrompt {
		n := int(x.Number - longPrompt)
		if n == 0 { // Plans that are older than the lengths.
			n = longPromptChunks
		}
		return &admitBody{promptChunks(promptCount, min(n, longPromptChunks))}
	}
	return &admitBody{promptChunks(x.Number%promptCount, 1+int(x.Number/promptCount)%chunksPerPrompt)}
}

// newEvict creates a command that removes the last chunks of a prompt, or sometimes only the first chunk.
func newEvict(x plan.Item) effects.CommandBody {
	all := promptChunks(x.Number%promptCount, chunksPerPrompt)
	if x.Number >= 80 {
		return &evictBody{all[:1]}
	}
	return &evictBody{all[int(x.Number/promptCount)%chunksPerPrompt:]}
}

func newLookup(x plan.Item) effects.CommandBody {
	if x.Number == longPrompt {
		return &lookupBody{promptChunks(promptCount, longPromptChunks)}
	}
	return &lookupBody{promptChunks(x.Number%promptCount, chunksPerPrompt)}
}

func newFinalLookup(x plan.Item) effects.CommandBody {
	return &finalLookupBody{*newLookup(x).(*lookupBody)}
}

func newLeave(plan.Item) effects.CommandBody { return &leaveBody{} }
