package runtime

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A loop steps one machine and carries out what it wants. Everything in it belongs to the goroutine that has the turn.
// That is the loop's own goroutine, which others reach through the mailbox, or a goroutine that posted and has nothing
// else to do until the machine has taken what it posted: it steps the machine itself (mailbox.Step), because to wake
// another goroutine for it takes longer than most steps.
type loop struct {
	machine effects.Machine
	mailbox *mailbox
	driver  driver

	turn    sync.Mutex // held by the goroutine that steps the machine; for good once the loop has ended
	fell    *fall      // what another goroutine panicked with while it had the turn: nobody steps the machine any more
	out     effects.Effects
	event   effects.Event     // that is being taken
	carried int               // effects of it that were carried out
	trace   *postmortem.Trace // nil: nothing is remembered
	timer   *time.Timer       // wakes the loop's goroutine
	alarm   effects.Time      // when, while it is armed
	armed   bool

	// contain takes what the loop panicked with, on its goroutine, which ends then; nil: the panic goes on.
	contain func(said any, stack []string)

	// turns counts how often the system's clock went back, turnsSeen how often that was when the loop began; turned is told
	// the first time.
	turns     func() uint64
	turnsSeen uint64
	turned    func()

	calls chan func()   // run between steps
	stop  chan struct{} // closed to end the loop, once
	once  sync.Once
	ended chan struct{} // closed when it has
}

// A fall is a panic of a goroutine that had the turn and is not the loop's own.
type fall struct {
	said  any
	stack []string
	dump  []byte
}

// A driver carries out effects; it never blocks, and keeps no span of them.
type driver interface {
	carryOut(effects.Effect)
	// before sees each event just before the machine does.
	before(effects.Event)
}

func newLoop(m effects.Machine, box *mailbox, d driver) *loop {
	return &loop{machine: m, mailbox: box, driver: d, turns: plane.ClockSetbacks, turned: func() {},
		timer: time.NewTimer(time.Hour), calls: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{})}
}

func (l *loop) run() {
	defer close(l.ended)
	defer l.timer.Stop()
	if l.contain != nil {
		defer func() {
			if said := recover(); said != nil {
				l.contain(said, postmortem.Stack())
			}
		}()
	}
	l.turn.Lock()
	l.turnsSeen = l.turns()
	l.mailbox.steps(l.stepHere)
	for {
		l.round()
		l.mailbox.rest(false)
		l.turn.Unlock()
		var call func()
		rang, over := false, false
		select {
		case <-l.mailbox.wake:
		case <-l.timer.C:
			rang = true
		case call = <-l.calls:
		case <-l.stop:
			over = true
		}
		l.turn.Lock() // For good where this returns: nobody steps an ended loop.
		switch f := l.fell; {
		case f != nil && l.contain == nil:
			panic(fmt.Sprintf("%v\n\n%s", f.said, f.dump))
		case f != nil:
			l.contain(f.said, f.stack)
			return
		case over:
			return
		case rang:
			l.armed = false
		case call != nil:
			call()
		}
	}
}

// roundsHere bounds for how long a goroutine that only came to post steps the machine. What is left is the loop's own
// goroutine's.
const roundsHere = 4

// stepHere steps the machine on the calling goroutine, unless another goroutine has the turn. That one looks into the
// mailbox again before it gives the turn back.
func (l *loop) stepHere() {
	if !l.turn.TryLock() {
		l.mailbox.rouse()
		return
	}
	defer l.turn.Unlock()
	if l.fell != nil {
		return
	}
	ended := false
	defer func() {
		if said := recover(); said != nil {
			// A defect of ours is no panic of the engine's goroutine, which might recover from it and go on. The loop's
			// goroutine may be waiting for the turn, or has to be woken.
			l.fell = &fall{said, postmortem.Stack(), debug.Stack()}
			l.mailbox.again()
		}
		if !ended {
			l.mailbox.rest(false) // Also where what the goroutine ran for us ended the goroutine.
		}
	}()
	for n := 1; ; n++ {
		l.round()
		if !l.mailbox.rest(n < roundsHere) {
			break
		}
	}
	ended = true
}

// round takes what waits, and has the machine look at its clock once: a machine with longer work to do (Deadline() =
// now) takes turns with the mailbox and with calls. It is called with the turn.
func (l *loop) round() {
	l.mailbox.begin()
	for _, ev := range l.mailbox.take() {
		l.step(ev)
	}
	if l.turned != nil && l.turns() != l.turnsSeen {
		l.turned()
		l.turned = nil
	}
	deadline, ok := l.machine.Deadline()
	if !ok {
		return
	}
	at := now()
	if deadline <= at {
		l.step(&effects.Tick{})
		l.mailbox.again()
		return
	}
	// The timer is let go off too early rather than set anew in each round. After a suspend, which Go's timers do not
	// count, the alarm may lie in the past and the timer still run.
	if deadline = min(deadline, at.Add(effects.Duration(wakeMax))); !l.armed || deadline < l.alarm || l.alarm <= at {
		l.timer.Reset(time.Duration(deadline.Sub(at)))
		l.armed, l.alarm = true, deadline
	}
}

func (l *loop) step(ev effects.Event) {
	l.out.Reset()
	at := now() // Read after ev was dequeued.
	l.event, l.carried = ev, 0
	if l.trace != nil {
		l.trace.Event(at, ev)
	}
	l.driver.before(ev)
	l.machine.Step(at, ev, &l.out)
	for i := range l.out.Len() {
		e := l.out.At(i)
		if l.trace != nil {
			l.trace.Effect(e)
		}
		l.driver.carryOut(e)
		l.carried++
	}
	l.event = nil
}

// call runs f between two steps and returns when it has run; false means that the loop has ended.
func (l *loop) call(f func()) bool {
	ran := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(ran) }:
		select {
		case <-ran:
			return true
		case <-l.ended: // It panicked, or was the last that ran.
		}
		select {
		case <-ran:
			return true
		default:
			return false
		}
	case <-l.ended:
		return false
	}
}

// end stops the loop and waits for it. It may be called again.
func (l *loop) end() {
	l.once.Do(func() { close(l.stop) })
	<-l.ended
}
