package runtime

import (
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A loop steps one machine and carries out what it wants. Everything in it belongs to its goroutine;
// others reach it through the mailbox, or ask for a call between two steps.
type loop struct {
	machine effects.Machine
	mailbox *mailbox
	driver  driver
	out     effects.Effects

	event   effects.Event     // that is being taken
	carried int               // effects of it that were carried out
	trace   *postmortem.Trace // nil: nothing is remembered

	// contain takes what the loop panicked with, on its goroutine, which ends then; nil: the panic goes on.
	contain func(said any, stack []string)

	// turns counts how often the system's clock went back; turned is told the first time.
	turns  func() uint64
	turned func()

	calls chan func()   // run between steps
	stop  chan struct{} // closed to end the loop, once
	once  sync.Once
	ended chan struct{} // closed when it has
}

// A driver carries out effects; it never blocks, and keeps no span of them.
type driver interface {
	carryOut(effects.Effect)
	// before sees each event just before the machine does.
	before(effects.Event)
}

func newLoop(m effects.Machine, box *mailbox, d driver) *loop {
	return &loop{machine: m, mailbox: box, driver: d, turns: plane.ClockTurns, turned: func() {},
		calls: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{})}
}

func (l *loop) run() {
	defer close(l.ended)
	if l.contain != nil {
		defer func() {
			if said := recover(); said != nil {
				l.contain(said, postmortem.Stack())
			}
		}()
	}
	turns := l.turns()
	timer := time.NewTimer(wakeMax)
	defer timer.Stop()
	for {
		for _, ev := range l.mailbox.take() {
			l.step(ev)
		}
		if l.turned != nil && l.turns() != turns {
			l.turned()
			l.turned = nil
		}
		// One Tick a round: a machine with longer work to do (Deadline() = now) takes turns with the
		// mailbox.
		var alarm <-chan time.Time
		if deadline, ok := l.machine.Deadline(); ok {
			if wait := until(deadline); wait > 0 {
				timer.Reset(wait)
			} else {
				l.step(&effects.Tick{})
				timer.Reset(0) // Look again at once, but after the mailbox and calls.
			}
			alarm = timer.C
		}
		select {
		case <-l.mailbox.wake:
		case <-alarm:
		case call := <-l.calls:
			call()
		case <-l.stop:
			return
		}
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
