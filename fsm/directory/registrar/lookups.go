package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Lookups ask directories which instances have the first chunks of a prefix. A lookup is sent to the directory that is
// selected by the prefix and, if that directory does not reply, to the next. Each lookup has exactly one
// [LookupResult], after [Config.MaxLookupTime] at the latest.
type Lookups struct {
	cfg     Config `snap:"share"`
	secret  uint64 `snap:"share"`
	pace    pace
	queues  []directoryQueue
	rows    table.Slab[lookup]
	cache   replyCache
	results []LookupResult
	reply   protocol.BatchedP2PLookupRetMsg `snap:"scratch"`
	hashes  []protocol.ChunkHash            `snap:"scratch"`
}

// A LookupResult lists the instances that may have the first of the requested chunks, longest prefix first. The answer
// is a hint: only the holder knows what is present.
type LookupResult struct {
	Ref kernel.Ref // the ref that was passed to StartLookup
	// Code is OK, or says why no directory could answer. Without an answer the lookup counts as a miss.
	Code    effects.Code
	Holders []Holder // valid until ClearResults
}

// A Holder is a location that may have the first chunks of a lookup.
type Holder struct {
	Instance string
	Location string
	At       effects.Addr // where peers connect first
	Chunks   int          // number of chunks from the first
}

// A directoryQueue is the state of the lookups at a directory.
type directoryQueue struct {
	conn     clientConn
	unsent   table.List // questions that were not sent yet
	inFlight table.List // questions without a reply
}

// A lookup is a lookup in progress.
type lookup struct {
	ref       kernel.Ref
	hashes    []protocol.ChunkHash
	sum       uint64
	queue     int
	sent      bool
	triedMask uint64         // desks that were tried, a bit for each
	timer     kernel.TimerID `snap:"set"`
}

// NewLookups returns Lookups without any lookup in progress. The configuration must pass its Check.
func NewLookups(c Config) Lookups { return new(Lookups).Recycle(c) }

// Recycle returns the same as NewLookups, and reuses the memory of l. The old l must not be used any more.
func (l *Lookups) Recycle(c Config) Lookups {
	from := prng.New(c.Seed ^ 0xA5C)
	return Lookups{
		cfg: c, secret: from.Next(), pace: pace{source: from, delayMin: c.BackoffMin, delayMax: c.BackoffMax},
		queues: table.RecycleSlice(l.queues, len(c.Directories)), rows: l.rows.Recycle(c.LookupsMax), cache: l.cache.recycle(c.CacheSize),
		results: l.results[:0],
	}
}

// StartLookup starts a lookup of the first of these chunks. The answer appears in [Lookups.Results] in this step or in
// a later step. StartLookup returns a handle for CancelLookup, or 0 if the answer is available already.
func (l *Lookups) StartLookup(v *env.Env, ref kernel.Ref, keys [][]byte) table.Handle {
	l.hashes = l.hashes[:0]
	for _, key := range keys[:min(len(keys), l.cfg.PrefixMax)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break // No directory can have a record of this chunk, so the prefix ends here.
		}
		l.hashes = append(l.hashes, hash)
	}
	if len(l.hashes) == 0 {
		l.addResult(ref, effects.OK, nil)
		return 0
	}
	sum := l.sumHashes(l.hashes)
	if holders, ok := l.cache.findReply(v.Now, sum, l.hashes); ok {
		l.addResult(ref, effects.OK, holders)
		return 0
	}
	h, q := l.rows.Add()
	if q == nil {
		l.addResult(ref, effects.TooMany, nil)
		return 0
	}
	*q = lookup{ref: ref, hashes: append(table.TrimSlice(q.hashes), l.hashes...), sum: sum}
	l.askNext(v, h)
	if l.rows.Get(h) == nil {
		return 0
	}
	return h
}

// CancelLookup ends a lookup without an answer. It does nothing if the lookup was answered.
func (l *Lookups) CancelLookup(v *env.Env, h table.Handle) {
	if l.rows.Get(h) != nil {
		l.removeLookup(v, h)
	}
}

// ForgetReply removes the cached reply for these chunks, because it proved wrong. The next lookup is sent to a
// directory again.
func (l *Lookups) ForgetReply(keys [][]byte) {
	l.hashes = l.hashes[:0]
	for _, key := range keys[:min(len(keys), l.cfg.PrefixMax)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break
		}
		l.hashes = append(l.hashes, hash)
	}
	l.cache.forgetReply(l.sumHashes(l.hashes), l.hashes)
}

// Results returns the answers since ClearResults was last called.
func (l *Lookups) Results() []LookupResult { return l.results }

// ClearResults removes all answers.
func (l *Lookups) ClearResults() {
	clear(l.results)
	l.results = l.results[:0]
}

// HasDirectories reports whether directories are configured.
func (l *Lookups) HasDirectories() bool { return len(l.queues) > 0 }

// CountOutstanding returns the number of outstanding completions, including completions of cancelled lookups.
func (l *Lookups) CountOutstanding() (n int) {
	for i := range l.queues {
		n += int(l.queues[i].conn.outstanding)
	}
	return n
}

// CountUnfinished returns the number of lookups without an answer.
func (l *Lookups) CountUnfinished() int { return l.rows.Len() }

// VisitTables reports the sizes of the tables.
func (l *Lookups) VisitTables(visit table.VisitFunc) {
	visit("lookups", l.rows.Len(), table.Empty)
	visit("answers kept", l.cache.rows.Len(), table.Bounded)
}

func (l *Lookups) addResult(ref kernel.Ref, code effects.Code, holders []Holder) {
	l.results = append(l.results, LookupResult{Ref: ref, Code: code, Holders: holders})
}

// finishLookup answers a question and removes it.
func (l *Lookups) finishLookup(v *env.Env, h table.Handle, code effects.Code, holders []Holder) {
	l.addResult(l.rows.Get(h).ref, code, holders)
	l.removeLookup(v, h)
}

func (l *Lookups) removeLookup(v *env.Env, h table.Handle) {
	l.leaveQueue(v, h)
	q := l.rows.Get(h)
	q.hashes = table.TrimSlice(q.hashes)
	l.rows.Remove(h)
}

// leaveQueue removes a question from its desk.
func (l *Lookups) leaveQueue(v *env.Env, h table.Handle) {
	q := l.rows.Get(h)
	if l.rows.InList(h) {
		d := &l.queues[q.queue]
		if q.sent {
			l.rows.Unlink(&d.inFlight, h)
		} else {
			l.rows.Unlink(&d.unsent, h)
		}
	}
	v.Timers.Stop(&q.timer)
}

// sumHashes returns a hash of a list of chunk hashes.
func (l *Lookups) sumHashes(hashes []protocol.ChunkHash) uint64 {
	s := l.secret
	for _, h := range hashes {
		s = (s ^ h.Bits) * 0x9E3779B97F4A7C15
		s ^= s >> 29
	}
	return s
}
