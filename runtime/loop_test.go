package runtime

import (
	"context"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// An echo machine delivers every command at once, asks for one Tick a command, and counts what it got.
type echo struct {
	deadline effects.Time // 0: none
	ticks    int
	last     effects.Time
	ran      bool // a step went back in time
}

func (m *echo) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	m.ran = m.ran || now < m.last
	m.last = now
	switch ev := ev.(type) {
	case *effects.Command:
		m.deadline = now.Add(effects.Millisecond)
		out.Deliver(effects.Deliver{Ticket: ev.Ticket})
		out.Return(ev.Ticket)
	case *effects.Tick:
		m.ticks++
		m.deadline = 0
		out.Observe(effects.Observe{})
	}
}

func (m *echo) Deadline() (effects.Time, bool) { return m.deadline, m.deadline != 0 }

// A recorder carries out effects by noting them.
type recorder struct {
	seen chan effects.Effect
}

func (r *recorder) beforeStep(effects.Event) {}

func (r *recorder) carryOut(e effects.Effect) {
	switch e := e.(type) { // Copies: effects are borrowed.
	case *effects.Deliver:
		d := *e
		r.seen <- &d
	case *effects.Return:
		d := *e
		r.seen <- &d
	case *effects.Observe:
		d := *e
		r.seen <- &d
	}
}

func startEcho(t *testing.T) (*echo, *recorder, *loop) {
	m, r := &echo{}, &recorder{seen: make(chan effects.Effect, 64)}
	l := newLoop(m, newMailbox(8, 1<<10), r)
	go l.run()
	t.Cleanup(l.shutDown)
	return m, r, l
}

func TestLoopCarriesOutInOrderAndTicks(t *testing.T) {
	m, r, l := startEcho(t)
	l.mailbox.Post(&effects.Command{Ticket: 1})
	if got, ok := (<-r.seen).(*effects.Deliver); !ok || got.Ticket != 1 {
		t.Errorf("first effect: %+v", got)
	}
	if got, ok := (<-r.seen).(*effects.Return); !ok || got.Ticket != 1 {
		t.Errorf("second effect: %+v", got)
	}
	t.Log("# the machine's deadline passes with nothing in the mailbox")
	if _, ok := (<-r.seen).(*effects.Observe); !ok {
		t.Error("no Tick came")
	}
	l.runBetween(func() {
		if m.ticks != 1 || m.ran {
			t.Errorf("%d ticks, backwards %v; want one tick and no step back", m.ticks, m.ran)
		}
	})
}

func TestLoopCallAfterTheEnd(t *testing.T) {
	l := newLoop(&echo{}, newMailbox(8, 1<<10), &recorder{})
	go l.run()
	if !l.runBetween(func() {}) {
		t.Error("a running loop made no call")
	}
	l.shutDown()
	if l.runBetween(func() {}) {
		t.Error("an ended loop says that it made a call")
	}
}

func BenchmarkLoopStep(b *testing.B) {
	l := newLoop(&echo{}, newMailbox(8, 1<<10), nopDriver{})
	ev := &effects.Command{Ticket: 1}
	b.ReportAllocs()
	for b.Loop() {
		l.stepMachine(ev)
	}
}

type nopDriver struct{}

func (nopDriver) beforeStep(effects.Event) {}
func (nopDriver) carryOut(effects.Effect)  {}

// A clock that goes back is told once, however often it does.
func TestAClockThatTurnsIsToldOnce(t *testing.T) {
	m, r := &echo{}, &recorder{seen: make(chan effects.Effect, 64)}
	l := newLoop(m, newMailbox(8, 1<<10), r)
	turns, told := uint64(7), 0
	l.clockSetbacks, l.onSetback = func() uint64 { return turns }, func() { told++ }
	go l.run()
	for range 4 {
		if !l.runBetween(func() { turns++ }) || !l.runBetween(func() {}) {
			t.Fatal("the loop has ended")
		}
	}
	l.shutDown()
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// Whoever waits for a call that panics is told that it did not end, and the loop ends in the hands of who contains it.
func TestACallThatPanics(t *testing.T) {
	m := &echo{}
	l := newLoop(m, newMailbox(8, 1<<10), &recorder{seen: make(chan effects.Effect, 8)})
	said := make(chan any, 1)
	l.contain = func(what any, stack []string) {
		if len(stack) == 0 || !strings.Contains(panicLocation(stack), "TestACallThatPanics") {
			t.Errorf("it is said to be at %q", panicLocation(stack))
		}
		said <- what
	}
	go l.run()
	if l.runBetween(func() { panic("on fire") }) {
		t.Error("the call is said to have ended")
	}
	if what := <-said; what != "on fire" {
		t.Errorf("contained %v", what)
	}
	if l.runBetween(func() {}) {
		t.Error("a loop that has ended takes calls")
	}
}

// A caller that waits between steps for a loop that is stuck gives up when its context ends, and what it wanted to run
// may run later.
func TestCallerLeavesAStuckLoop(t *testing.T) {
	_, _, l := startEcho(t)
	entered, leave, ran := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go l.runBetween(func() {
		close(entered)
		<-leave
	})
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if l.runBetweenUntil(ctx, func() {}) {
		t.Error("a function has run while the loop is stuck")
	}
	ctx, cancel = context.WithCancel(context.Background())
	result := make(chan bool)
	go func() { result <- l.runBetweenUntil(ctx, func() { close(ran) }) }()
	close(leave)
	<-ran
	if !<-result {
		t.Error("the caller is told that its function did not run")
	}
	cancel()
}
