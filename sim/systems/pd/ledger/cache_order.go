package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A cache evicts the chunk that was used longest ago. The oracle knows two bounds of the last use of a chunk: a Get that
// delivered the chunk certainly used it, and anything that concerns the chunk may have used it.

var checkEvictedOldest = oracle.NewCheck("S9", "chunks that are evicted in the order of their use")

// cacheOrderOracle judges which chunks a cache evicts.
type cacheOrderOracle struct {
	oracleBase
	perIncarnation[cacheOrderState]
}

// cacheOrderState holds the bounds of the last use of each chunk in an incarnation of a node, in true time.
type cacheOrderState struct {
	usedAt    map[uint32]int64 `snap:"skip"`    // a certain use
	mayUseAt  map[uint32]int64 `snap:"skip"`    // the last possible use
	anyMayUse int64            `snap:"skip"`    // when any chunk may have been used
	waits     bool             `snap:"skip"`    // a request waits for pages
	evicted   []evictedChunk   `snap:"scratch"` // in this step
}

// An evictedChunk is a chunk that was certainly used at a time, and was evicted afterwards.
type evictedChunk struct {
	chunk  uint32
	usedAt int64
}

func (s *cacheOrderState) clearForReuse() {
	*s = cacheOrderState{usedAt: world.RecycleMap(s.usedAt), mayUseAt: world.RecycleMap(s.mayUseAt),
		evicted: s.evicted[:0]}
}

func (*cacheOrderOracle) subscribe(l *oracle.Subscriptions[cacheOrderOracle]) {
	oracle.On(l, func(o *cacheOrderOracle, _ *oracle.Call, e pd.GetOutcome) {
		if !e.Node.IsCache {
			return
		}
		for i := range e.Effect.Pages {
			o.stateOf(e.Node).recordUse(o.oracles().cache.firstOf(o.w.Jobs[e.Command.Job].KeyNumbers[i]), o.w.Now)
		}
	})
	oracle.On(l, func(o *cacheOrderOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Node.IsCache {
			job := e.Command.Job
			if t := e.Command.Target; t != 0 { // A command that gives pages back states no job.
				job = o.w.Commands[t-1].Job
			}
			o.touch(e.Node, o.w.Jobs[job].KeyNumbers)
		}
	})
	oracle.On(l, func(o *cacheOrderOracle, _ *oracle.Call, e messageReceived) { o.recordMessage(e.node, e.body) })
	oracle.On(l, func(o *cacheOrderOracle, _ *oracle.Call, e world.SteppingMachine) {
		if !e.Node.IsCache {
			return
		}
		switch x := e.Event.(type) {
		case *effects.Landed:
			o.touch(e.Node, o.oracles().promises.stateOf(e.Node).grantChunks[x.Grant])
		case *effects.Revoked:
			o.touch(e.Node, o.oracles().promises.stateOf(e.Node).grantChunks[x.Grant])
		default: // Other events are about commands or messages.
		}
	})
	oracle.On(l, func(o *cacheOrderOracle, _ *oracle.Call, e world.FactObserved) {
		if !e.Node.IsCache {
			return
		}
		switch e.Effect.Fact { //nolint:exhaustive // Other facts are about no chunk.
		case effects.FactReady, effects.FactLapsed:
			if k, ok := o.facts().keyOfHash(e.Node, e.Effect.ID); ok {
				o.touch(e.Node, []uint32{k})
			}
		case effects.FactEvicted:
			if k, ok := o.facts().keyOfHash(e.Node, e.Effect.ID); ok {
				o.stateOf(e.Node).recordEviction(k)
			}
		}
	})
	oracle.On(l, func(o *cacheOrderOracle, _ *oracle.Call, e stepCounted) {
		s := o.stateOf(e.node)
		for _, x := range s.evicted { // A claim on another chunk may have expired in the same step.
			if o.w.Failure == nil {
				o.verifyOldest(e.node, x.chunk, x.usedAt)
			}
		}
		s.evicted = s.evicted[:0]
		if !e.node.IsCache {
			return
		}
		waits := slices.ContainsFunc(o.oracles().queue.stateOf(e.node).pending, func(x pendingRequest) bool { return x.keyCount > 0 })
		if waits || s.waits { // A request that waits uses the chunks that it names each time it is tried.
			s.anyMayUse = o.w.Now
		}
		s.waits = waits
	})
}

// recordUse records that a chunk was certainly used.
func (s *cacheOrderState) recordUse(chunk uint32, now int64) {
	if s.usedAt == nil {
		s.usedAt = map[uint32]int64{}
	}
	s.usedAt[chunk] = now
}

// recordEviction records that a chunk was evicted. The same step may store the chunk again and deliver it to a Get that
// waits, which is a use of the new copy.
func (s *cacheOrderState) recordEviction(chunk uint32) {
	if at, known := s.usedAt[chunk]; known {
		s.evicted = append(s.evicted, evictedChunk{chunk: chunk, usedAt: at})
		delete(s.usedAt, chunk)
	}
}

// touch records that chunks may have been used.
func (or *cacheOrderOracle) touch(n *world.Node, chunks []uint32) {
	s := or.stateOf(n)
	if s.mayUseAt == nil {
		s.mayUseAt = map[uint32]int64{}
	}
	for _, k := range chunks {
		s.mayUseAt[or.oracles().cache.firstOf(k)] = or.w.Now
	}
}

// recordMessage records that the chunks that a message concerns may have been used.
func (or *cacheOrderOracle) recordMessage(n *world.Node, body []byte) {
	if !n.IsCache {
		return
	}
	m, ok := or.facts().asRequest(body)
	if !ok {
		or.stateOf(n).anyMayUse = or.w.Now
		return
	}
	for _, key := range m.Keys {
		if k, ok := or.w.Keys.NumberOf(key); ok {
			or.touch(n, []uint32{k})
		}
	}
	for _, ids := range [][]uint64{m.Ext.Commit, m.Ext.Abort} {
		for _, id := range ids {
			or.touch(n, or.oracles().promises.stateOf(n).grantChunks[effects.GrantID(id)])
		}
	}
}

// verifyOldest checks a chunk that was evicted: every other chunk that the cache could evict may have been used later
// than the evicted one certainly was.
func (or *cacheOrderOracle) verifyOldest(n *world.Node, evicted uint32, usedAt int64) {
	s, cache := or.stateOf(n), or.oracles().cache.stateOf(n)
	if n.KeepsOffers || n.LendsChunks || n.ArenaPages+n.SecondPages > 0 || pd.InfoOf(n).Cfg.Shares || n.Busy || n.Draining || n.Leaving ||
		!reportsEvictions(n) || s.waits || n.ResumesAt(or.w.Now) {
		or.countVoid(checkEvictedOldest)
		return
	}
	or.countJudged(checkEvictedOldest)
	for k := range uint32(len(or.w.Keys)) {
		if at := max(s.mayUseAt[k], s.anyMayUse); cache.present[k] && k != evicted && at < usedAt && or.isEvictable(n, k) {
			or.fail(checkEvictedOldest, "node %d evicts chunk %d, which was used %d ns later than chunk %d",
				n.AsSubject(), oracle.Key(evicted), usedAt-at, oracle.Key(k))
			return
		}
	}
}

// isEvictable reports whether nothing but the cache keeps a chunk.
func (or *cacheOrderOracle) isEvictable(n *world.Node, chunk uint32) bool {
	page, ready := pd.ReadyAt(n, or.w.Keys[chunk])
	if !ready || pd.ClaimsOf(n, or.w.Keys[chunk]) > 0 {
		return false
	}
	s := pd.PageStateOf(n, page.Index)
	return n.Pool.Pages[page.Index].Pins == 0 && s.Refs == 1 && s.Holds == 0 && s.Loans == 0 && s.Grant == 0
}
