package serve

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// What operators are told of the log: each time that entries of a directory that is followed were gone before they were
// read, and when it does not answer for long. Whose entries are read from the middle on is no news.
func TestNewsOfTheLog(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Log.Addr, c.Log.Life = effects.Addr{Host: "log", Port: 1}, 1 })
	var reading effects.Corr
	var opens []effects.Corr
	var said []directory.Event
	step := func(ev effects.Event) {
		r.step(ev)
		for i := range r.out.Len() {
			switch x := r.out.At(i).(type) {
			case *effects.Open:
				opens = append(opens, x.Corr)
			case *effects.Observe:
				said = append(said, directory.Event(x.ID))
			case *effects.Send:
				var q sharedlog.Request
				if err := q.Decode(x.Body); err != nil {
					t.Fatal(err)
				}
				if q.Entry == nil {
					reading = x.Corr
				}
			default:
			}
		}
	}
	at := uint64(0)
	reads := func(entries ...sharedlog.Entry) {
		a := sharedlog.Answer{}
		for _, e := range entries {
			at++
			a.Last = sharedlog.Position{Major: at}
			a.Entries = append(a.Entries, sharedlog.Stored{At: a.Last, Entry: e.Append(nil)})
		}
		step(&effects.Replied{Corr: reading, Body: a.Append(nil)})
	}
	wants := func(when string, want ...directory.Event) {
		t.Helper()
		if !slices.Equal(said, want) {
			t.Errorf("%s: it says %v, want %v", when, said, want)
		}
		said = said[:0]
	}

	step(&effects.Tick{})
	for i, corr := range opens {
		step(&effects.Opened{Corr: corr, Conn: effects.Conn(1 + i)})
	}
	reads(sharedlog.Entry{Teller: 2, Nth: 7}, sharedlog.Entry{Teller: 2, Nth: 8})
	wants("read from the middle on")
	r.now += effects.Time(effects.Second)
	step(&effects.Tick{})
	reads(sharedlog.Entry{Teller: 2, Nth: 11})
	wants("two are missing", directory.LogShort)
	r.now += effects.Time(effects.Second)
	step(&effects.Tick{})
	reads(sharedlog.Entry{Teller: 2, Nth: 12})
	wants("none is missing")
	for range 10 {
		r.now += effects.Time(effects.Second)
		step(&effects.Tick{})
	}
	wants("no answer", directory.LogDown)
}
