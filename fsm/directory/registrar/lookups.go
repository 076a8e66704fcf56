package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Lookups ask directories which instances have the first chunks of a prefix. A lookup is sent to the directory that
// is selected by the prefix and, if that directory does not reply, to the next. Each lookup has exactly one [Answer],
// after [Config.Longest] at the latest.
type Lookups struct {
	cfg     Config `snap:"share"`
	secret  uint64 `snap:"share"`
	pace    pace
	desks   []desk
	rows    table.Slab[question]
	kept    kept
	answers []Answer
	read    protocol.BatchedP2PLookupRetMsg `snap:"scratch"`
	hashes  []protocol.ChunkHash            `snap:"scratch"`
}

// An Answer lists the instances that may have the first of the requested chunks, longest prefix first. The answer is
// a hint: only the holder knows what is present.
type Answer struct {
	Who kernel.Ref // the ref that was passed to Ask
	// Code is OK, or says why no directory could answer. Without an answer the lookup counts as a miss.
	Code    effects.Code
	Holders []Holder // valid until HeardAnswers
}

// A Holder is a location that may have the first chunks of a lookup.
type Holder struct {
	Instance string
	Location string
	At       effects.Addr // where peers connect first
	Chunks   int          // number of chunks from the first
}

// A desk is the state of the lookups at a directory.
type desk struct {
	line    line
	waiting table.List // questions that were not sent yet
	asked   table.List // questions without a reply
}

// A question is a lookup in progress.
type question struct {
	who    kernel.Ref
	hashes []protocol.ChunkHash
	sum    uint64
	desk   int
	sent   bool
	tried  uint64         // desks that were tried, a bit for each
	timer  kernel.TimerID `snap:"set"`
}

// NewLookups returns Lookups without any lookup in progress. The configuration must pass its Check.
func NewLookups(c Config) Lookups { return new(Lookups).Emptied(c) }

// Emptied returns the same as NewLookups, and reuses the memory of l. The old l must not be used any more.
func (l *Lookups) Emptied(c Config) Lookups {
	from := prng.New(c.Seed ^ 0xA5C)
	return Lookups{
		cfg: c, secret: from.Next(), pace: pace{from: from, min: c.BackoffMin, max: c.BackoffMax},
		desks: table.Zeroed(l.desks, len(c.Directories)), rows: l.rows.Emptied(c.Questions), kept: l.kept.emptied(c.Kept),
		answers: l.answers[:0],
	}
}

// Ask starts a lookup of the first of these chunks. The answer appears in [Lookups.Answers] in this step or in a
// later step. Ask returns a handle for Cancel, or 0 if the answer is available already.
func (l *Lookups) Ask(v *env.Env, who kernel.Ref, keys [][]byte) table.Handle {
	l.hashes = l.hashes[:0]
	for _, key := range keys[:min(len(keys), l.cfg.Prefix)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break // No directory can have a record of this chunk, so the prefix ends here.
		}
		l.hashes = append(l.hashes, hash)
	}
	if len(l.hashes) == 0 {
		l.answer(who, effects.OK, nil)
		return 0
	}
	sum := l.sum(l.hashes)
	if holders, ok := l.kept.find(v.Now, sum, l.hashes); ok {
		l.answer(who, effects.OK, holders)
		return 0
	}
	h, q := l.rows.Add()
	if q == nil {
		l.answer(who, effects.TooMany, nil)
		return 0
	}
	*q = question{who: who, hashes: append(table.Shed(q.hashes), l.hashes...), sum: sum}
	l.next(v, h)
	if l.rows.Get(h) == nil {
		return 0
	}
	return h
}

// Cancel ends a lookup without an answer. It does nothing if the lookup was answered.
func (l *Lookups) Cancel(v *env.Env, h table.Handle) {
	if l.rows.Get(h) != nil {
		l.remove(v, h)
	}
}

// Forget removes the cached reply for these chunks, because it proved wrong. The next lookup is sent to a directory
// again.
func (l *Lookups) Forget(keys [][]byte) {
	l.hashes = l.hashes[:0]
	for _, key := range keys[:min(len(keys), l.cfg.Prefix)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break
		}
		l.hashes = append(l.hashes, hash)
	}
	l.kept.forget(l.sum(l.hashes), l.hashes)
}

// Answers returns the answers since HeardAnswers was last called.
func (l *Lookups) Answers() []Answer { return l.answers }

// HeardAnswers removes all answers.
func (l *Lookups) HeardAnswers() {
	clear(l.answers)
	l.answers = l.answers[:0]
}

// Any reports whether directories are configured.
func (l *Lookups) Any() bool { return len(l.desks) > 0 }

// Owed returns the number of outstanding completions, including completions of cancelled lookups.
func (l *Lookups) Owed() (n int) {
	for i := range l.desks {
		n += int(l.desks[i].line.owed)
	}
	return n
}

// Left returns the number of lookups without an answer.
func (l *Lookups) Left() int { return l.rows.Len() }

// Tables reports the sizes of the tables.
func (l *Lookups) Tables(visit table.Visit) {
	visit("lookups", l.rows.Len(), table.Empty)
	visit("answers kept", l.kept.rows.Len(), table.Bounded)
}

func (l *Lookups) answer(who kernel.Ref, code effects.Code, holders []Holder) {
	l.answers = append(l.answers, Answer{Who: who, Code: code, Holders: holders})
}

// end answers a question and removes it.
func (l *Lookups) end(v *env.Env, h table.Handle, code effects.Code, holders []Holder) {
	l.answer(l.rows.Get(h).who, code, holders)
	l.remove(v, h)
}

func (l *Lookups) remove(v *env.Env, h table.Handle) {
	l.leave(v, h)
	q := l.rows.Get(h)
	q.hashes = table.Shed(q.hashes)
	l.rows.Remove(h)
}

// leave removes a question from its desk.
func (l *Lookups) leave(v *env.Env, h table.Handle) {
	q := l.rows.Get(h)
	if l.rows.Listed(h) {
		d := &l.desks[q.desk]
		if q.sent {
			l.rows.Unlink(&d.asked, h)
		} else {
			l.rows.Unlink(&d.waiting, h)
		}
	}
	v.Timers.Stop(&q.timer)
}

// sum returns a hash of a list of chunk hashes.
func (l *Lookups) sum(hashes []protocol.ChunkHash) uint64 {
	s := l.secret
	for _, h := range hashes {
		s = (s ^ h.Bits) * 0x9E3779B97F4A7C15
		s ^= s >> 29
	}
	return s
}
