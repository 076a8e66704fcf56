package replica

import (
	"slices"
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
	kept []sharedlog.Stored
	last uint64
	conn effects.Conn
}

func newRig(t *testing.T, life uint64, change func(*Config)) *rig {
	c := Default()
	c.Addr, c.Life = effects.Addr{Host: "log", Port: 1}, life
	if change != nil {
		change(&c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, Log: New(c)}
}

// step gives it an event, has it go on, and gives what it wants of the log.
func (r *rig) step(ev effects.Event) (*sharedlog.Answer, []effects.Effect) {
	r.out.Reset()
	a := r.Step(r.now, ev, &r.out)
	r.GoOn(r.now, &r.out)
	var all []effects.Effect
	for i := range r.out.Len() { // Their memory is used again.
		switch x := r.out.At(i).(type) {
		case *effects.Open:
			all = append(all, &effects.Open{Corr: x.Corr})
		case *effects.Send:
			all = append(all, &effects.Send{Corr: x.Corr, Body: slices.Clone(x.Body)})
		default:
		}
	}
	return a, all
}

// goes has the log do all that is asked for as long as something is, and gives what was read. Questions to append whose
// number is in lost are carried out and not answered.
func (r *rig) goes(lost ...int) (read [][]byte) {
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
		a, more := r.step(ev)
		if a != nil {
			for _, s := range a.Entries {
				read = append(read, slices.Clone(s.Entry))
			}
		}
		todo = append(todo, more...)
	}
	return read
}

func (r *rig) answer(q *sharedlog.Request) *sharedlog.Answer {
	a := &sharedlog.Answer{Last: sharedlog.Position{Major: r.last}}
	if q.Entry != nil {
		r.last++
		a.Last.Major = r.last
		r.kept = append(r.kept, sharedlog.Stored{At: a.Last, Entry: slices.Clone(q.Entry)})
		return a
	}
	for _, s := range r.kept {
		if q.After.Less(s.At) && len(a.Entries) < int(q.Most) {
			a.Entries = append(a.Entries, s)
		}
	}
	return a
}

// says are the bodies of an entry's frames.
func says(e sharedlog.Entry) (all []string) {
	for rest := e.Frames; len(rest) > 0; {
		var body []byte
		_, body, rest, _ = sharedlog.CutFrame(rest)
		all = append(all, string(body))
	}
	return all
}

// follows gives what one reads of entries, each by its frames and the number of its gap.
func (r *rig) follows(stored [][]byte) (all []string, gaps []uint64) {
	for _, s := range stored {
		if e, gap, ok := r.Follow(s); ok {
			all, gaps = append(all, says(e)...), append(gaps, gap)
		}
	}
	return all, gaps
}

// Each reads what others tell, once and in order, and nothing of its own.
func TestToldOnce(t *testing.T) {
	a, b := newRig(t, 1, func(c *Config) { c.Entry, c.Patience = 20, effects.Second }), newRig(t, 2, nil)
	for _, s := range []string{"one", "two", "three", "four"} {
		a.Tell(sharedlog.Message, []byte(s))
	}
	// The answer to the second entry is lost, so it is put there again.
	read := a.goes(2)
	if own, _ := a.follows(read); len(own) != 0 {
		t.Errorf("it reads its own %q", own)
	}
	for at, ok := a.Deadline(); ok && a.Waiting() > 0; at, ok = a.Deadline() {
		a.now = max(a.now, at)
		a.goes()
	}
	if len(a.kept) != 3 {
		t.Fatalf("the log has %d entries", len(a.kept))
	}
	b.kept, b.last = a.kept, a.last
	all, gaps := b.follows(b.goes())
	if !slices.Equal(all, []string{"one", "two", "three", "four"}) || gaps[0] != gaps[1] {
		t.Errorf("the other one reads %q, gaps %v", all, gaps)
	}
	if again, _ := b.follows([][]byte{a.kept[0].Entry, []byte("nonsense")}); len(again) != 0 {
		t.Errorf("it reads %q again", again)
	}
}

// What had no room, and what the log lost, is a gap for who reads.
func TestGaps(t *testing.T) {
	a, b := newRig(t, 1, func(c *Config) { c.Buffer, c.Frame = 20, 9 }), newRig(t, 2, nil)
	tell := func(s string) { a.Tell(sharedlog.Message, []byte(s)) }
	step := func(what string, gap bool, want ...string) {
		t.Helper()
		a.now += effects.Time(effects.Second)
		b.now = a.now
		a.goes()
		b.kept, b.last = a.kept, a.last
		before := b.gaps
		all, _ := b.follows(b.goes())
		if !slices.Equal(all, want) || (b.gaps > before) != gap {
			t.Errorf("%s: it reads %q, a gap: %v", what, all, b.gaps > before)
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
	if b.Missed() != 3 {
		t.Errorf("%d times something was missing, want 3", b.Missed())
	}
}

// A log that begins anew is read from its start, wherever its positions are; and it is down while it does not answer.
func TestLogThatBeginsAnew(t *testing.T) {
	a := newRig(t, 1, nil)
	if _, ok := a.Deadline(); !ok || a.Down() {
		t.Error("it does not begin")
	}
	a.last = 100
	entry := func(nth uint64, s string) sharedlog.Stored {
		a.last++
		e := sharedlog.Entry{Teller: 2, Nth: nth, Frames: sharedlog.AppendFrame(nil, sharedlog.Message, []byte(s))}
		return sharedlog.Stored{At: sharedlog.Position{Major: a.last}, Entry: e.Append(nil)}
	}
	a.kept = append(a.kept, entry(0, "one"))
	all, _ := a.follows(a.goes())
	a.last, a.kept = 0, nil
	a.kept = append(a.kept, entry(0, "one"), entry(1, "two"))
	a.now += effects.Time(effects.Second)
	more, _ := a.follows(a.goes())
	if !slices.Equal(append(all, more...), []string{"one", "two"}) {
		t.Errorf("it reads %q, then %q", all, more)
	}
	for range 20 { // Nothing answers any more.
		if at, _ := a.Deadline(); at > a.now {
			a.now = at
		}
		a.step(&effects.Tick{})
	}
	if !a.Down() {
		t.Error("it is not down")
	}
	for range 3 {
		if at, _ := a.Deadline(); at > a.now {
			a.now = at
		}
		a.lines = [2]line{}
		a.goes()
	}
	if a.Down() {
		t.Error("it stays down")
	}
}
