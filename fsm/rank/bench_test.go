package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// A loop carries whole pushes between two ranks with as little around them as
// possible, to measure the machines alone. It supports just what a push that goes
// well needs.
type loop struct {
	tb       testing.TB
	s, r     *Rank
	now      effects.Time
	steps    int
	so, ro   effects.Effects
	nextConn effects.Conn
	channels []effects.Channel // by Conn-1
	ticket   effects.Ticket
	reserved effects.Ticket

	// One of each event is enough: nothing here overlaps.
	command  effects.Command
	received effects.Received
	opened   effects.Opened
	replied  effects.Replied
	imported effects.Imported
	landed   effects.Landed
	done     effects.TransferDone

	pages   []effects.Page
	got     bool
	sender  effects.Incarnation // as the receiver knows it
	next    [4]effects.Event    // for the sender, in order
	waiting int
	put     engine.Put
	get     engine.Get
	release engine.Unpin
}

func newLoop(tb testing.TB, chunks int) *loop {
	cfg := Config{
		Planes: []Plane{{Name: "shm", Blob: []byte("b")}}, Role: RoleSender,
		Common: Common{Layout: layout},
		Memory: Memory{Pages: uint32(2 * chunks)},
		Peers:  Peers{LocalID: "x"},
	}
	s, err := New(cfg, 1, 0)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Role = RoleReceiver
	r, err := New(cfg, 2, 0)
	if err != nil {
		tb.Fatal(err)
	}
	l := &loop{tb: tb, s: s, r: r, sender: nameFor(s, "", r, "r")}
	l.ticket++
	l.reserved = l.ticket
	l.drive(&effects.Command{Ticket: l.ticket, Body: &engine.Reserve{Count: uint32(chunks)}})
	var names []string
	for i := range chunks {
		names = append(names, string([]byte{'a' + byte(i%6), 'a' + byte(i/6%6), 'a' + byte(i/36)}))
	}
	l.put = engine.Put{
		Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte("bench"), Keys: keys(names),
		Layout: layout, LastChunkTokens: 4,
		Pages: append([]effects.Page(nil), l.pages...),
	}
	for i := range l.put.Pages {
		l.put.Pages[i].Length = 32
	}
	l.get = engine.Get{Request: l.put.Request, Keys: l.put.Keys}
	return l
}

func (l *loop) queue(ev effects.Event) {
	l.next[l.waiting] = ev
	l.waiting++
}

// drive feeds the sender until nothing waits for it.
func (l *loop) drive(ev effects.Event) {
	l.queue(ev)
	for l.waiting > 0 {
		first := l.next[0]
		copy(l.next[:], l.next[1:l.waiting])
		l.waiting--
		l.stepSender(first)
	}
}

func (l *loop) stepSender(ev effects.Event) {
	l.now++
	l.steps++
	l.so.Reset()
	l.s.Step(l.now, ev, &l.so)
	for i := range l.so.Len() {
		switch e := l.so.At(i).(type) {
		case *effects.Open:
			l.nextConn++
			l.channels = append(l.channels, e.Channel)
			l.opened = effects.Opened{Corr: e.Corr, Conn: l.nextConn}
			l.queue(&l.opened)
		case *effects.Send:
			l.received = effects.Received{Conn: 99, Channel: l.channels[e.Conn-1], Request: 1, Body: e.Body}
			l.stepReceiver(&l.received)
			l.replied.Corr = e.Corr
			l.queue(&l.replied)
		case *effects.Import:
			l.imported = effects.Imported{Corr: e.Corr, Link: 1}
			l.queue(&l.imported)
		case *effects.Transfer:
			l.pages = l.pages[:0]
			for _, p := range e.Pairs {
				l.pages = append(l.pages, effects.Page{Index: p.Remote.Index, Generation: p.Remote.Generation,
					Length: p.Local.Length})
			}
			l.landed = effects.Landed{Landing: 1, Grant: e.Grant, Peer: l.sender, Pages: l.pages, Complete: true}
			l.done = effects.TransferDone{Corr: e.Corr, Settled: true}
			l.stepReceiver(&l.landed)
			l.queue(&l.done)
		case *effects.Deliver:
			l.got = e.Code == effects.OK
			l.pages = append(l.pages[:0], e.Pages...)
		}
	}
}

func (l *loop) stepReceiver(ev effects.Event) {
	l.steps++
	l.ro.Reset()
	l.r.Step(l.now, ev, &l.ro)
	for i := range l.ro.Len() {
		switch e := l.ro.At(i).(type) {
		case *effects.Reply:
			l.replied.Body = e.Body
		case *effects.Deliver:
			l.got = e.Code == effects.OK
		}
	}
}

// push moves one batch and reads it: Put, Get, Release.
func (l *loop) push() {
	l.ticket++
	l.command = effects.Command{Ticket: l.ticket, Body: &l.put}
	l.drive(&l.command)
	if !l.got {
		l.tb.Fatal("put did not end well")
	}
	l.ticket++
	l.command = effects.Command{Ticket: l.ticket, Body: &l.get}
	l.stepReceiver(&l.command)
	if !l.got {
		l.tb.Fatal("get did not find the chunks")
	}
	l.release.Got = l.ticket
	l.ticket++
	l.command = effects.Command{Ticket: l.ticket, Body: &l.release}
	l.stepReceiver(&l.command)
}

// A whole push allocates nothing once its tables have grown.
func TestPushAllocatesNothing(t *testing.T) {
	l := newLoop(t, 8)
	for range 100 {
		l.push()
	}
	if n := testing.AllocsPerRun(100, l.push); n != 0 {
		t.Errorf("a push of 8 chunks allocates %v times, want 0", n)
	}
}

func benchmarkPush(b *testing.B, chunks int) {
	l := newLoop(b, chunks)
	for range 10 {
		l.push()
	}
	l.steps = 0
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l.push()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(l.steps), "ns/step")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunks), "ns/chunk")
}

func BenchmarkPush1(b *testing.B)  { benchmarkPush(b, 1) }
func BenchmarkPush64(b *testing.B) { benchmarkPush(b, 64) }
