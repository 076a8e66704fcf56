package serve

import (
	"hash/fnv"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// What operators are told of the log: each time that entries of a directory that is followed were gone before they were
// read, and when it does not answer for long. Whose entries are read from the middle on is no news.
func TestNewsOfTheLog(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Log.Addr, c.Log.Incarnation = effects.Addr{Host: "log", Port: 1}, 1 })
	var reading effects.Corr
	var opens []effects.Corr
	var said []directory.NoteKind
	step := func(ev effects.Event) {
		r.step(ev)
		for i := range r.out.Len() {
			switch x := r.out.At(i).(type) {
			case *effects.Open:
				opens = append(opens, x.Corr)
			case *effects.Observe:
				said = append(said, directory.NoteKind(x.ID))
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
	readBytes := func(entries ...[]byte) {
		a := sharedlog.Reply{}
		for _, e := range entries {
			at++
			a.Last = sharedlog.Position{Major: at}
			a.Entries = append(a.Entries, sharedlog.StoredEntry{At: a.Last, Entry: e})
		}
		step(&effects.Replied{Corr: reading, Body: a.Append(nil)})
	}
	reads := func(entries ...sharedlog.Entry) {
		var all [][]byte
		for _, e := range entries {
			all = append(all, e.Append(nil))
		}
		readBytes(all...)
	}
	wants := func(when string, want ...directory.NoteKind) {
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
	reads(sharedlog.Entry{Author: 2, Number: 7}, sharedlog.Entry{Author: 2, Number: 8})
	wants("read from the middle on")
	r.now += effects.Time(effects.Second)
	step(&effects.Tick{})
	reads(sharedlog.Entry{Author: 2, Number: 11})
	wants("two are missing", directory.LogTruncated)
	r.now += effects.Time(effects.Second)
	step(&effects.Tick{})
	reads(sharedlog.Entry{Author: 2, Number: 12})
	wants("none is missing")
	r.now += effects.Time(effects.Second)
	step(&effects.Tick{})
	readBytes(entryOfVersion(3), entryOfVersion(3))
	wants("a directory of another release appends", directory.LogVersion)
	r.now += effects.Time(effects.Second)
	step(&effects.Tick{})
	readBytes([]byte("no entry"), entryOfVersion(sharedlog.Version))
	wants("another program appends, and a directory of this release")
	for range 10 {
		r.now += effects.Time(effects.Second)
		step(&effects.Tick{})
	}
	wants("no answer", directory.LogDown)
}

// entryOfVersion returns an empty entry of author 3 whose encoding states a version.
func entryOfVersion(version byte) []byte {
	b := (&sharedlog.Entry{Author: 3, Number: 1}).Append(nil)
	b[1] = version
	b = b[:len(b)-sharedlog.EntryTailBytes]
	sum := fnv.New64a()
	sum.Write(b)
	return sum.Sum(b)
}

// A log is a directory with a log that the test answers for.
type log struct {
	*rig
	t       *testing.T
	reading effects.Corr
	added   []sharedlog.Entry
	at      uint64
	blames  int // lines about what is no message, of the last step
}

func newLog(t *testing.T) *log {
	r := newRig(t, func(c *Config) { c.Log.Addr, c.Log.Incarnation = effects.Addr{Host: "log", Port: 1}, 1 })
	l := &log{rig: r, t: t}
	l.does(&effects.Tick{})
	return l
}

// does steps the machine, and answers what it wants of the log but for reads.
func (l *log) does(ev effects.Event) {
	l.step(ev)
	l.blames = 0
	var next []effects.Event
	for i := range l.out.Len() {
		switch x := l.out.At(i).(type) {
		case *effects.Open:
			next = append(next, &effects.Opened{Corr: x.Corr, Conn: effects.Conn(100 + x.Corr)})
		case *effects.Observe:
			if x.Fact == effects.FactMalformed {
				l.blames++
			}
		case *effects.Send:
			var q sharedlog.Request
			if err := q.Decode(slices.Clone(x.Body)); err != nil {
				l.t.Fatal(err)
			}
			if q.Entry == nil {
				l.reading = x.Corr
				continue
			}
			var e sharedlog.Entry
			if err := e.Decode(q.Entry); err != nil {
				l.t.Fatal(err)
			}
			l.at++
			l.added = append(l.added, e)
			a := sharedlog.Reply{Last: sharedlog.Position{Major: l.at}}
			next = append(next, &effects.Replied{Corr: x.Corr, Body: a.Append(nil)})
		default:
		}
	}
	blames := l.blames
	for _, ev := range next {
		l.does(ev)
	}
	l.blames = blames
}

// reads answers a read by entries.
func (l *log) reads(entries ...sharedlog.Entry) {
	a := sharedlog.Reply{}
	for _, e := range entries {
		l.at++
		a.Last = sharedlog.Position{Major: l.at}
		a.Entries = append(a.Entries, sharedlog.StoredEntry{At: a.Last, Entry: e.Append(nil)})
	}
	l.does(&effects.Replied{Corr: l.reading, Body: a.Append(nil)})
}

// What somebody puts into the log costs a step no more than it may hear of it: questions are heard in between, what is
// no message is told once for each entry, and what was told behind it is heard.
func TestLogOfTinyFrames(t *testing.T) {
	l := newLog(t)
	w := worker("a", 0)
	var junk, honest []byte
	const frames = 64_000
	for range frames {
		junk = sharedlog.AppendFrame(junk, sharedlog.FrameReport, []byte("123456789"))
	}
	told := sharedlog.Report{Origin: 7, Body: (&protocol.RegisterMsg{Worker: w, Listener: listener()}).Append(nil)}
	honest = sharedlog.AppendFrame(honest, sharedlog.FrameReport, told.Append(nil))
	l.reads(sharedlog.Entry{Author: 2, Frames: junk}, sharedlog.Entry{Author: 2, Number: 1, Frames: junk},
		sharedlog.Entry{Author: 2, Number: 2, Frames: honest})
	blames, steps := l.blames, 1
	for ; l.Figures().Workers == 0; steps++ {
		if at, ok := l.Deadline(); !ok || at > l.now {
			t.Fatalf("after %d steps it waits until %v, %v", steps, at, ok)
		}
		if l.does(&effects.Tick{}); l.blames > 1 {
			t.Fatalf("one step tells %d times of what is no message", l.blames)
		}
		if l.out.Len() > 3 {
			t.Fatalf("a step has %d effects", l.out.Len())
		}
		blames += l.blames
		ask := protocol.BatchedP2PLookupMsg{Worker: worker("x", 0)}
		if l.hears(effects.ChannelDirectory, 5, ask.Append(nil)); l.answer(t) == nil {
			t.Fatal("a lookup is not answered meanwhile")
		}
		if l.refused() == effects.Malformed {
			blames++
		}
	}
	if want := 2 * frames / followFrames / 2; blames != 2 || steps < want {
		t.Errorf("%d frames took %d steps, and were told of %d times", 2*frames, steps, blames)
	}
}

// What a directory tells others of a message is what it read of it: fields that nobody knows are left out, and where it
// came from is said.
func TestOnlyWhatWasReadIsTold(t *testing.T) {
	l := newLog(t)
	m := protocol.RegisterMsg{Worker: worker("a", 0), Listener: listener(), PeerInitURL: []byte("h:1")}
	body := m.Append(nil)
	padded := append([]byte{body[0] + 1}, body[1:]...) // A map of one more.
	padded = append(padded, 0xa1, 'x', 0xc6, 0, 1, 0, 0)
	padded = append(padded, make([]byte, 1<<16)...)
	x := effects.Received{Conn: 5, Origin: 77, Channel: effects.ChannelDirectory, Request: 9, Body: padded}
	l.does(&x)
	if len(l.added) != 1 {
		t.Fatalf("it adds %d entries", len(l.added))
	}
	kind, _, rest, _ := sharedlog.CutFrame(l.added[0].Frames) // That it hears the worker.
	if kind != sharedlog.FrameFollowed {
		t.Errorf("it tells %v first", kind)
	}
	kind, frame, rest, ok := sharedlog.CutFrame(rest)
	var r sharedlog.Report
	if !ok || kind != sharedlog.FrameReport || len(rest) != 0 || r.Decode(frame) != nil || r.Origin != 77 ||
		!slices.Equal(r.Body, body) {
		t.Errorf("it tells %d bytes from %d", len(frame), r.Origin)
	}
}

// A worker that is forgotten without a word of its own is forgotten by all that know it by this directory.
func TestGoneIsTold(t *testing.T) {
	l := newLog(t)
	m := protocol.RegisterMsg{Worker: worker("a", 0), Listener: listener()}
	l.does(&effects.Received{Conn: 5, Channel: effects.ChannelDirectory, Request: 9, Body: m.Append(nil)})
	l.does(&effects.ConnLost{Conn: 5})
	for range 301 { // Longer than anybody waits, in steps that say that it is awake.
		l.now = l.now.Add(effects.Second)
		l.does(&effects.Tick{})
	}
	if l.Figures().Workers != 0 {
		t.Fatal("it is not forgotten")
	}
	last := l.added[len(l.added)-1]
	kind, frame, _, _ := sharedlog.CutFrame(last.Frames)
	var s sharedlog.Subject
	if kind != sharedlog.FrameUnfollowed || s.Decode(frame) != nil || string(s.Instance) != "a" {
		t.Errorf("it tells %v %q", kind, frame)
	}
	other := newLog(t)
	other.reads(sharedlog.Entry{Author: 2, Frames: l.added[0].Frames})
	if other.Figures().Workers != 1 {
		t.Fatal("another one does not know it")
	}
	other.now++
	other.does(&effects.Tick{})
	other.now = other.now.Add(effects.Second)
	other.does(&effects.Tick{})
	other.reads(sharedlog.Entry{Author: 2, Number: 1, Frames: last.Frames})
	if other.Figures().Workers != 0 {
		t.Error("another one does not forget it")
	}
}
