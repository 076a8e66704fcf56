package runtime

import (
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A loop steps one machine and carries out what it wants. Everything in it belongs to its goroutine;
// others reach it through the mailbox, or ask for a call between two steps.
type loop struct {
	machine effects.Machine
	mailbox *mailbox
	driver  driver
	out     effects.Effects

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
	return &loop{machine: m, mailbox: box, driver: d,
		calls: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{})}
}

func (l *loop) run() {
	defer close(l.ended)
	timer := time.NewTimer(wakeMax)
	defer timer.Stop()
	for {
		for _, ev := range l.mailbox.take() {
			l.step(ev)
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
	l.driver.before(ev)
	l.out.Reset()
	l.machine.Step(now(), ev, &l.out) // Read after ev was dequeued.
	for i := range l.out.Len() {
		l.driver.carryOut(l.out.At(i))
	}
}

// call runs f between two steps and returns when it has run; false means that the loop has ended.
func (l *loop) call(f func()) bool {
	ran := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(ran) }:
		<-ran
		return true
	case <-l.ended:
		return false
	}
}

// end stops the loop and waits for it. It may be called again.
func (l *loop) end() {
	l.once.Do(func() { close(l.stop) })
	<-l.ended
}
