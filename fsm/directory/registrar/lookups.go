package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Lookups ask directories who has the first chunks of a prefix: one of those that are listed, chosen by the prefix, and
// the next one where that does not answer. Each question has one [Answer], after [Config.Longest] at the latest.
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

// An Answer says who may have the first of the chunks that somebody asked for, whoever has most of them first. It is a
// hint: what holds is what a holder says.
type Answer struct {
	Who     kernel.Ref   // as it asked
	Code    effects.Code // OK, or why no directory could say anything; it is a miss then
	Holders []Holder     // good until HeardAnswers
}

// A Holder may have the first chunks of a question.
type Holder struct {
	Instance string
	Location string
	At       effects.Addr // where peers begin
	Chunks   int          // from the first
}

// A desk is where one directory is asked.
type desk struct {
	line    line
	waiting table.List // questions
	asked   table.List // those without an answer yet
}

// A question is one that has no answer yet.
type question struct {
	who    kernel.Ref
	hashes []protocol.ChunkHash
	sum    uint64
	desk   int
	sent   bool
	tried  uint64         // desks, a bit each
	timer  kernel.TimerID `snap:"set"`
}

// NewLookups asks nobody yet. The configuration must pass its Check.
func NewLookups(c Config) Lookups { return new(Lookups).Emptied(c) }

// Emptied returns what NewLookups does, in the memory of l, which is not used any more.
func (l *Lookups) Emptied(c Config) Lookups {
	from := prng.New(c.Seed ^ 0xA5C)
	return Lookups{
		cfg: c, secret: from.Next(), pace: pace{from: from, min: c.BackoffMin, max: c.BackoffMax},
		desks: table.Zeroed(l.desks, len(c.Directories)), rows: l.rows.Emptied(c.Questions), kept: l.kept.emptied(c.Kept),
		answers: l.answers[:0],
	}
}

// Ask asks who has the first of these chunks, by their keys. What it is answered is among [Lookups.Answers], in this
// step or a later one; zero: in this one. A question can be given up by what Ask returns.
func (l *Lookups) Ask(v *env.Env, who kernel.Ref, keys [][]byte) table.Handle {
	l.hashes = l.hashes[:0]
	for _, key := range keys[:min(len(keys), l.cfg.Prefix)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break // No directory can be told of it, so nobody is known to have it.
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

// Cancel gives a question up: it has no answer any more. One that has been answered is left alone.
func (l *Lookups) Cancel(v *env.Env, h table.Handle) {
	if l.rows.Get(h) != nil {
		l.remove(v, h)
	}
}

// Forget has the next question about the same chunks asked again: what was answered last has turned out wrong.
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

// Answers are those since HeardAnswers.
func (l *Lookups) Answers() []Answer { return l.answers }

// HeardAnswers says that those who asked have heard.
func (l *Lookups) HeardAnswers() {
	clear(l.answers)
	l.answers = l.answers[:0]
}

// Any says whether there is a directory to ask.
func (l *Lookups) Any() bool { return len(l.desks) > 0 }

// Owed is how many completions are awaited, also of questions that were given up.
func (l *Lookups) Owed() (n int) {
	for i := range l.desks {
		n += int(l.desks[i].line.owed)
	}
	return n
}

// Left is how many questions have no answer yet.
func (l *Lookups) Left() int { return l.rows.Len() }

// Tables shows what is in its tables, for those who look for what was left behind.
func (l *Lookups) Tables(visit table.Visit) {
	visit("lookups", l.rows.Len(), table.Empty)
	visit("answers kept", l.kept.rows.Len(), table.Bounded)
}

func (l *Lookups) answer(who kernel.Ref, code effects.Code, holders []Holder) {
	l.answers = append(l.answers, Answer{Who: who, Code: code, Holders: holders})
}

// end answers a question.
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

// leave takes a question away from its desk.
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

// sum stands for a list of hashes.
func (l *Lookups) sum(hashes []protocol.ChunkHash) uint64 {
	s := l.secret
	for _, h := range hashes {
		s = (s ^ h.Bits) * 0x9E3779B97F4A7C15
		s ^= s >> 29
	}
	return s
}
