package replica

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// A rig is a directory's side of a log, and the log, which the test plays by hand.
type rig struct {
	Log
	t    *testing.T
	now  effects.Time
	out  effects.Effects
	kept []sharedlog.StoredEntry
	last uint64
	conn effects.Conn
}

func newRig(t *testing.T, life uint64, change func(*Config)) *rig {
	c := Default()
	c.Addr, c.Incarnation = effects.Addr{Host: "log", Port: 1}, life
	if change != nil {
		change(&c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, Log: New(c)}
}

// A frame is what one reads of a log: a body, and the number of the gap before it.
type frame struct {
	body string
	gap  uint64
}

// step gives it an event, has it go on, and gives what it has read and what it wants of the log.
func (r *rig) step(ev effects.Event) (read []frame, all []effects.Effect) {
	r.out.Reset()
	r.Step(r.now, ev, &r.out)
	for f, ok := r.Next(); ok; f, ok = r.Next() {
		read = append(read, frame{string(f.Body), f.Gaps})
	}
	r.SendDue(r.now, &r.out)
	for i := range r.out.Len() { // Their memory is used again.
		switch x := r.out.At(i).(type) {
		case *effects.Open:
			all = append(all, &effects.Open{Corr: x.Corr})
		case *effects.Send:
			all = append(all, &effects.Send{Corr: x.Corr, Body: slices.Clone(x.Body)})
		default:
		}
	}
	return read, all
}

// goes has the log do all that is asked for as long as something is, and gives what was read. Questions to append whose
// number is in lost are carried out and not answered.
func (r *rig) goes(lost ...int) (read []frame) {
	_, todo := r.step(&effects.Tick{})
	for n, appended := 0, 0; len(todo) > 0; n++ {
		if n > 100 {
			r.t.Fatal("it does not end")
		}
		e := todo[0]
		todo = todo[1:]
		var ev effects.Event
		switch x := e.(type) {
		case *effects.Open:
			r.conn++
			ev = &effects.Opened{Corr: x.Corr, Conn: r.conn}
		case *effects.Send:
			var q sharedlog.Request
			if err := q.Decode(x.Body); err != nil {
				r.t.Fatal(err)
			}
			a := r.answer(&q)
			if appended++; q.Entry != nil && slices.Contains(lost, appended) {
				continue
			}
			if q.Entry == nil {
				appended--
			}
			ev = &effects.Replied{Corr: x.Corr, Body: a.Append(nil)}
		default:
			continue
		}
		frames, more := r.step(ev)
		read = append(read, frames...)
		todo = append(todo, more...)
	}
	return read
}

func (r *rig) answer(q *sharedlog.Request) *sharedlog.Reply {
	a := &sharedlog.Reply{Last: sharedlog.Position{Major: r.last}}
	if q.Entry != nil {
		r.last++
		a.Last.Major = r.last
		if q.Before != (sharedlog.Position{}) {
			r.kept = slices.DeleteFunc(r.kept, func(s sharedlog.StoredEntry) bool { return s.At.Less(q.Before) })
		} else if n := len(r.kept) + 1 - int(q.Keep); n > 0 {
			r.kept = r.kept[n:]
		}
		r.kept = append(r.kept, sharedlog.StoredEntry{At: a.Last, Entry: slices.Clone(q.Entry)})
		return a
	}
	for _, s := range r.kept {
		if q.After.Less(s.At) && len(a.Entries) < int(q.Limit) {
			a.Entries = append(a.Entries, s)
		}
	}
	return a
}

// bodies are those of frames.
func bodies(frames []frame) (all []string) {
	for _, f := range frames {
		all = append(all, f.body)
	}
	return all
}

// Each reads what others tell, once and in order, and nothing of its own.
func TestToldOnce(t *testing.T) {
	a, b := newRig(t, 1, func(c *Config) { c.EntryBytes, c.RequestTimeout = 20, effects.Second }), newRig(t, 2, nil)
	for _, s := range []string{"one", "two", "three", "four"} {
		a.QueueFrame(sharedlog.FrameReport, []byte(s))
	}
	// The answer to the second entry is lost, so it is put there again.
	read := a.goes(2)
	if len(read) != 0 {
		t.Errorf("it reads its own %v", read)
	}
	for at, ok := a.Deadline(); ok && a.PendingBytes() > 0; at, ok = a.Deadline() {
		a.now = max(a.now, at)
		a.goes()
	}
	if len(a.kept) != 3 {
		t.Fatalf("the log has %d entries", len(a.kept))
	}
	b.kept, b.last = a.kept, a.last
	all := b.goes()
	if !slices.Equal(bodies(all), []string{"one", "two", "three", "four"}) || all[0].gap != all[3].gap {
		t.Errorf("the other one reads %v", all)
	}
	for _, entry := range [][]byte{a.kept[0].Entry, []byte("nonsense")} {
		b.last++
		b.kept = append(b.kept, sharedlog.StoredEntry{At: sharedlog.Position{Major: b.last}, Entry: entry})
	}
	b.now = a.now.Add(effects.Second)
	if again := b.goes(); len(again) != 0 {
		t.Errorf("it reads %v again", again)
	}
}

// What had no room, and what the log lost, is a gap for who reads.
func TestGaps(t *testing.T) {
	a, b := newRig(t, 1, func(c *Config) { c.BufferBytes, c.FrameBytes = 20, 9 }), newRig(t, 2, nil)
	tell := func(s string) { a.QueueFrame(sharedlog.FrameReport, []byte(s)) }
	step := func(what string, gap bool, want ...string) {
		t.Helper()
		a.now += effects.Time(effects.Second)
		b.now = a.now
		a.goes()
		b.kept, b.last = a.kept, a.last
		before := b.gapCount
		all := bodies(b.goes())
		if !slices.Equal(all, want) || (b.gapCount > before) != gap {
			t.Errorf("%s: it reads %q, a gap: %v", what, all, b.gapCount > before)
		}
	}
	tell("one")
	step("the first that is heard may have others before it", true, "one")
	tell("two")
	step("nothing is missing", false, "two")
	tell("three")
	tell("no room for this")
	tell("nor this one")
	step("something was left out", true, "three")
	tell("four")
	step("nothing is missing", false, "four")
	tell("0123456789")
	step("too long: nobody finds that out yet", false)
	tell("five")
	step("too long", true, "five")
	tell("six")
	a.now += effects.Time(effects.Second)
	a.goes()
	a.kept = a.kept[:len(a.kept)-1]
	tell("seven")
	step("the log has lost one", true, "seven")
	if b.CountMissed() != 3 {
		t.Errorf("%d times something was missing, want 3", b.CountMissed())
	}
}

// A log that begins anew is read from its start, wherever its positions are; and it is down while it does not answer.
func TestLogThatBeginsAnew(t *testing.T) {
	a := newRig(t, 1, nil)
	if _, ok := a.Deadline(); !ok || a.IsDown() {
		t.Error("it does not begin")
	}
	a.last = 100
	entry := func(nth uint64, s string) sharedlog.StoredEntry {
		a.last++
		e := sharedlog.Entry{Author: 2, Number: nth, Frames: sharedlog.AppendFrame(nil, sharedlog.FrameReport, []byte(s))}
		return sharedlog.StoredEntry{At: sharedlog.Position{Major: a.last}, Entry: e.Append(nil)}
	}
	a.kept = append(a.kept, entry(0, "one"))
	all := bodies(a.goes())
	a.last, a.kept = 0, nil
	a.kept = append(a.kept, entry(0, "one"), entry(1, "two"))
	a.now += effects.Time(effects.Second)
	more := bodies(a.goes())
	if !slices.Equal(append(all, more...), []string{"one", "two"}) {
		t.Errorf("it reads %q, then %q", all, more)
	}
	for range 20 { // Nothing answers any more.
		if at, _ := a.Deadline(); at > a.now {
			a.now = at
		}
		a.step(&effects.Tick{})
	}
	if !a.IsDown() {
		t.Error("it is not down")
	}
	for range 3 {
		if at, _ := a.Deadline(); at > a.now {
			a.now = at
		}
		a.conns = [2]logConn{}
		a.goes()
	}
	if a.IsDown() {
		t.Error("it stays down")
	}
}

// The log keeps about so many bytes of what was read, however large entries are: each entry that is appended has it
// begin there, once so much was read; before that it keeps so many entries.
func TestLogIsBoundedByBytes(t *testing.T) {
	const most = 64 << 10
	a := newRig(t, 1, func(c *Config) { c.LogBytes, c.PollInterval = most, effects.Millisecond })
	sum := func() (n int) {
		for _, s := range a.kept {
			n += len(s.Entry) + storedOverhead
		}
		return n
	}
	for n := range 500 {
		a.QueueFrame(sharedlog.FrameReport, make([]byte, 1+n*37%5000))
		a.now += effects.Time(10 * effects.Millisecond)
		a.goes()
		if sum() > most+most/maxMarks+3*5200 {
			t.Fatalf("after %d entries the log has %d bytes, of %d", n, sum(), most)
		}
	}
	if sum() < most-most/maxMarks-5200 {
		t.Errorf("the log has %d bytes, of %d", sum(), most)
	}
	if n := len(a.truncationMarks.ring); n > maxMarks+1 {
		t.Errorf("%d positions are remembered", n)
	}
	a.last, a.kept = 0, nil // It begins anew, at positions that were there before.
	a.now += effects.Time(effects.Second)
	a.QueueFrame(sharedlog.FrameReport, []byte("x"))
	a.goes()
	if a.truncationMarks.truncateBefore() != (sharedlog.Position{}) || sum() > 200 {
		t.Errorf("a log of %d bytes is cut at %v", sum(), a.truncationMarks.truncateBefore())
	}
}

// What is longer than any directory's entry is passed over and not looked into, and what was told behind it is read.
func TestNoEntryOfADirectory(t *testing.T) {
	a := newRig(t, 1, nil)
	var frames []byte
	for len(frames) < 4<<20 {
		frames = sharedlog.AppendFrame(frames, sharedlog.FrameReport, nil)
	}
	for n, frames := range [][]byte{frames, sharedlog.AppendFrame(nil, sharedlog.FrameReport, []byte("one"))} {
		a.last++
		e := sharedlog.Entry{Author: 2, Number: uint64(n), Frames: frames}
		a.kept = append(a.kept, sharedlog.StoredEntry{At: sharedlog.Position{Major: a.last}, Entry: e.Append(nil)})
	}
	if all := bodies(a.goes()); !slices.Equal(all, []string{"one"}) {
		t.Errorf("it reads %d frames", len(all))
	}
	if n := cap(a.unread); n > 64<<10 {
		t.Errorf("%d bytes are kept of what was read", n)
	}
}

// A directory follows up to Tellers others, each of which may append an entry in the time of one read: an answer that
// has room for fewer would leave it behind for ever.
func TestAnswersHaveRoomForEachTeller(t *testing.T) {
	c := Default()
	c.Addr, c.Incarnation = effects.Addr{Host: "log", Port: 1}, 1
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	c.ReadEntries = uint32(c.Authors) - 1
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "ReadEntries 63") {
		t.Errorf("an answer of fewer entries than directories: %v", err)
	}
}
