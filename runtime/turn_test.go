package runtime

import (
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// idleLoop starts a loop and returns when its goroutine has nothing left to do: from then on only what wakes it has it
// step.
func idleLoop(t *testing.T, m effects.Machine, d driver, contain func(any, []string)) *loop {
	t.Helper()
	l := newLoop(m, newMailbox(8, 1<<10), d)
	l.contain = contain
	go l.run()
	t.Cleanup(l.shutDown)
	if !l.runBetween(func() {}) {
		t.Fatal("the loop has ended")
	}
	l.turn.Lock() // Until the round after the call is over.
	defer l.turn.Unlock()
	return l
}

// stacked is a driver that notes whether it is called from a function of that name.
type stacked struct {
	name string
	on   int // outcomes that were delivered there
	all  int
}

func (s *stacked) beforeStep(effects.Event) {}

func (s *stacked) carryOut(e effects.Effect) {
	if _, ok := e.(*effects.Deliver); !ok {
		return // What comes of a deadline is the loop's goroutine's.
	}
	stack := make([]byte, 16<<10)
	if s.all++; strings.Contains(string(stack[:goruntime.Stack(stack, false)]), s.name) {
		s.on++
	}
}

// A goroutine that posts and then steps has the machine take its event itself, and wakes no other goroutine.
func TestThePosterSteps(t *testing.T) {
	d := &stacked{name: "TestThePosterSteps"}
	l := unstartedLoop(t, d)
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 1})
	if len(l.mailbox.wake) != 0 {
		t.Error("a post wakes the loop's goroutine, and the poster is about to step the machine")
	}
	l.mailbox.Step()
	if d.all != 1 || d.on != 1 {
		t.Errorf("%d of %d outcomes were delivered by the goroutine that posted", d.on, d.all)
	}
	if len(l.mailbox.wake) != 0 {
		t.Error("the loop's goroutine is woken when nothing is left")
	}
}

// A poster that does not get the turn has the loop's goroutine woken, unless the goroutine that has it looks again.
func TestAPosterWithoutTheTurn(t *testing.T) {
	l := unstartedLoop(t, nopDriver{})
	l.turn.Lock()
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 1})
	l.mailbox.Step()
	l.turn.Unlock()
	if len(l.mailbox.wake) == 0 {
		t.Error("nobody takes what was posted while another goroutine had the turn")
	}
	l.mailbox.takeEvents()
	<-l.mailbox.wake
	l.mailbox.beginRound()
	l.mailbox.Post(&effects.Command{Ticket: 2})
	if len(l.mailbox.wake) != 0 {
		t.Error("the loop's goroutine is woken, and another one is about to look")
	}
	if !l.mailbox.endRound(true) || l.mailbox.endRound(false) || len(l.mailbox.wake) == 0 {
		t.Error("what is left is nobody's")
	}
}

// plain delivers each command, and has no deadline.
type plain struct{}

func (plain) Step(_ effects.Time, ev effects.Event, out *effects.Effects) {
	if c, ok := ev.(*effects.Command); ok {
		out.Deliver(effects.Deliver{Ticket: c.Ticket})
	}
}

func (plain) Deadline() (effects.Time, bool) { return 0, false }

// unstartedLoop makes a loop whose machine only posters step: its own goroutine does not run yet.
func unstartedLoop(t *testing.T, d driver) *loop {
	l := newLoop(plain{}, newMailbox(8, 1<<10), d)
	l.mailbox.setStepFunc(l.stepByPoster)
	t.Cleanup(func() {
		go l.run()
		l.shutDown()
	})
	return l
}

// A message for which the mailbox has no room waits for the loop, not for its poster, who cannot step while it waits.
func TestWhoHoldsTheMailboxFindsRoom(t *testing.T) {
	l := newLoop(&echo{}, newMailbox(1, 1<<10), nopDriver{})
	go l.run()
	t.Cleanup(l.shutDown)
	l.mailbox.Hold()
	for range 3 {
		l.mailbox.Post(&effects.Received{})
	}
	l.mailbox.Step()
}

// A repeater posts another event for each effect, so that its machine never runs out of them.
type repeater struct{ box *mailbox }

func (r *repeater) beforeStep(effects.Event) {}

func (r *repeater) carryOut(e effects.Effect) {
	if _, ok := e.(*effects.Deliver); ok {
		r.box.Post(&effects.Command{Ticket: 1})
	}
}

// However much there is to do, a goroutine that came to post is soon let go, and the loop's own goroutine goes on.
func TestThePosterIsLetGo(t *testing.T) {
	d := &repeater{}
	l := unstartedLoop(t, d)
	d.box = l.mailbox
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 1})
	l.mailbox.Step() // There is no other goroutine yet: this returns only if it leaves work to it.
	if len(l.mailbox.wake) == 0 {
		t.Error("the loop's goroutine is not woken for what is left")
	}
}

// What a poster's step panics with is a defect of the machine: it ends in the hands of the loop's goroutine, and the
// poster, which may be an engine's goroutine that recovers, goes on.
func TestThePostersPanicIsTheLoops(t *testing.T) {
	said, stack := make(chan any, 1), ""
	l := idleLoop(t, &echo{}, burning{}, func(what any, at []string) { stack = strings.Join(at, "\n"); said <- what })
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 1})
	l.mailbox.Step()
	if what := <-said; what != "on fire" || !strings.Contains(stack, "TestThePostersPanicIsTheLoops") {
		t.Errorf("contained %v at %s", what, stack)
	}
	if l.runBetween(func() {}) {
		t.Error("a loop whose machine panicked takes calls")
	}
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 2})
	l.mailbox.Step() // Nobody steps it any more.
}

// So it is where the loop's goroutine was about to step the machine just then.
func TestThePostersPanicBesideTheLoop(t *testing.T) {
	said := make(chan any, 1)
	d := &once{seen: make(chan effects.Effect, 8)}
	l := idleLoop(t, &echo{}, d, func(what any, _ []string) { said <- what })
	called := false
	d.do = func() {
		l.calls <- func() { called = true } // The loop's goroutine has taken it, and wants the turn.
		panic("on fire")
	}
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 1})
	l.mailbox.Step()
	if what := <-said; what != "on fire" {
		t.Errorf("contained %v", what)
	}
	if <-l.ended; called {
		t.Error("a call ran after the machine had panicked")
	}
}

// A machine that has panicked is not stepped again, before the loop's goroutine has heard of it either.
func TestNobodyStepsAfterAPanic(t *testing.T) {
	steps := 0
	l := newLoop(plain{}, newMailbox(8, 1<<10), doing(func() { steps++; panic("on fire") }))
	l.mailbox.setStepFunc(l.stepByPoster)
	for range 2 {
		l.mailbox.Hold()
		l.mailbox.Post(&effects.Command{Ticket: 1})
		l.mailbox.Step()
	}
	if steps != 1 || len(l.mailbox.wake) == 0 {
		t.Errorf("stepped %d times, and the loop's goroutine is woken: %v", steps, len(l.mailbox.wake) > 0)
	}
}

type doing func()

func (doing) beforeStep(effects.Event)  {}
func (d doing) carryOut(effects.Effect) { d() }

type burning struct{}

func (burning) beforeStep(effects.Event) {}
func (burning) carryOut(effects.Effect)  { panic("on fire") }

// A goroutine that ends in the middle of a step, as one of a test does that fails, leaves the machine to others.
func TestThePosterEnds(t *testing.T) {
	d := &once{do: goruntime.Goexit, seen: make(chan effects.Effect, 8)}
	l := idleLoop(t, &echo{}, d, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.mailbox.Hold()
		l.mailbox.Post(&effects.Command{Ticket: 1})
		l.mailbox.Step()
	}()
	<-ended
	l.mailbox.Post(&effects.Command{Ticket: 2})
	if e, ok := (<-d.seen).(*effects.Deliver); !ok || e.Ticket != 2 {
		t.Errorf("got %+v", e)
	}
}

// once does something for the first effect, and notes the others.
type once struct {
	do   func()
	seen chan effects.Effect
}

func (o *once) beforeStep(effects.Event) {}

func (o *once) carryOut(e effects.Effect) {
	if do := o.do; do != nil {
		o.do = nil
		do()
	}
	if e, ok := e.(*effects.Deliver); ok {
		d := *e
		o.seen <- &d
	}
}

// After its end nobody steps a machine.
func TestAnEndedLoopIsNotStepped(t *testing.T) {
	d := &stacked{}
	l := newLoop(&echo{}, newMailbox(8, 1<<10), d)
	go l.run()
	l.shutDown()
	l.mailbox.Hold()
	l.mailbox.Post(&effects.Command{Ticket: 1})
	l.mailbox.Step()
	if d.all != 0 {
		t.Errorf("%d outcomes after the end", d.all)
	}
}

// Whoever posts, and however many at a time: no event is forgotten, and none is taken by two goroutines at once.
func TestNothingPostedIsForgotten(t *testing.T) {
	const goroutines, events = 8, 2000
	d := &delivered{all: make(chan struct{}), want: goroutines * events}
	l := newLoop(&echo{}, newMailbox(8, 1<<10), d)
	go l.run()
	t.Cleanup(l.shutDown)
	var posting sync.WaitGroup
	for g := range goroutines {
		posting.Go(func() {
			for range events {
				if g%2 == 0 {
					l.mailbox.Hold()
				}
				l.mailbox.Post(&effects.Command{Ticket: 1})
				if g%2 == 0 {
					l.mailbox.Step()
				}
			}
		})
	}
	posting.Wait()
	<-d.all
}

type delivered struct {
	n, want int
	all     chan struct{}
}

func (d *delivered) beforeStep(effects.Event) {}

func (d *delivered) carryOut(e effects.Effect) {
	if _, ok := e.(*effects.Deliver); !ok {
		return
	}
	if d.n++; d.n == d.want {
		close(d.all)
	}
}

// distant has a deadline that each command says anew.
type distant struct{ deadline effects.Time }

func (m *distant) Step(now effects.Time, ev effects.Event, _ *effects.Effects) {
	if c, ok := ev.(*effects.Command); ok {
		m.deadline = now.Add(effects.Duration(c.Ticket))
	}
}

func (m *distant) Deadline() (effects.Time, bool) { return m.deadline, m.deadline != 0 }

// The alarm is never later than the machine's deadline, whoever stepped it, and is left alone where it is early enough.
func TestTheAlarmIsEarlyEnough(t *testing.T) {
	m := &distant{}
	l := idleLoop(t, m, nopDriver{}, nil)
	var last effects.Time
	for i, after := range []time.Duration{time.Hour, 2 * time.Hour, 500 * time.Millisecond, time.Hour} {
		l.mailbox.Hold()
		l.mailbox.Post(&effects.Command{Ticket: effects.Ticket(after)})
		l.mailbox.Step()
		l.turn.Lock()
		if !l.armed || l.alarmTime > m.deadline {
			t.Errorf("with a deadline after %v the alarm is armed: %v, and %v after it", after, l.armed, l.alarmTime.Sub(m.deadline))
		}
		if i == 1 && now() < last && l.alarmTime > last {
			t.Error("the alarm is put off")
		}
		last = l.alarmTime
		l.turn.Unlock()
	}
}
