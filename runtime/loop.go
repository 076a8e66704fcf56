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

// A loop steps a machine and carries out the effects that the machine emits. All state belongs to the goroutine that
// holds the turn. This is the loop's own goroutine, which other goroutines reach through the mailbox, or a goroutine
// that has posted an event and has nothing else to do until the machine has taken the event. That goroutine steps the
// machine itself (mailbox.Step), because waking another goroutine takes longer than most steps.
type loop struct {
	machine effects.Machine
	mailbox *mailbox
	driver  driver

	// turn is held by the goroutine that steps the machine. Once the loop has ended, the mutex stays locked.
	turn sync.Mutex
	// fell is the panic of another goroutine while holding the turn. Once the field is set, the machine is not stepped
	// any more.
	fell    *fall
	out     effects.Effects
	event   effects.Event     // the event of the current step
	carried int               // the number of the step's effects that have been carried out
	trace   *postmortem.Trace // nil if no events are recorded
	timer   *time.Timer       // wakes the loop's goroutine
	alarm   effects.Time      // the time for which the timer is armed
	armed   bool

	// contain receives the value and the stack of a panic of the loop. The function runs on the loop's goroutine,
	// which ends afterwards. If contain is nil, the panic continues.
	contain func(said any, stack []string)

	// The first function returns how often the system's clock went back; the second field is that count when the loop
	// began. The third is called the first time that the count has changed.
	turns     func() uint64
	turnsSeen uint64
	turned    func()

	calls chan func()   // functions to be run between steps
	stop  chan struct{} // closed once, to end the loop
	once  sync.Once
	ended chan struct{} // closed when the loop has ended
}

// A fall is the panic of a goroutine that held the turn and is not the loop's own.
type fall struct {
	said  any
	stack []string
	dump  []byte
}

// A driver carries out effects. The methods never block, and do not keep the effects or their slices.
type driver interface {
	carryOut(effects.Effect)
	// before receives each event just before the machine does.
	before(effects.Event)
}

// newLoop returns a loop for the machine m, which takes events from box and carries out effects by d. The caller
// starts the loop's goroutine.
func newLoop(m effects.Machine, box *mailbox, d driver) *loop {
	return &loop{machine: m, mailbox: box, driver: d, turns: plane.ClockSetbacks, turned: func() {},
		timer: time.NewTimer(time.Hour), calls: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{})}
}

// run is the loop's own goroutine. The goroutine steps the machine until the loop is shut down or a panic ends the
// loop.
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
		// The mutex stays locked where this function returns, so that an ended loop is never stepped.
		l.turn.Lock()
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

// roundsHere limits the number of rounds for which a goroutine that has posted an event steps the machine. Remaining
// work is left to the loop's own goroutine.
const roundsHere = 4

// stepHere steps the machine on the calling goroutine, unless another goroutine holds the turn. That goroutine checks
// the mailbox again before releasing the turn.
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
			// A defect of the machine must not surface as a panic of the engine's goroutine, which might recover and
			// continue. The loop's goroutine may be waiting for the turn, or has to be woken.
			l.fell = &fall{said, postmortem.Stack(), debug.Stack()}
			l.mailbox.again()
		}
		if !ended {
			// This also runs if the called code has ended the goroutine (runtime.Goexit).
			l.mailbox.rest(false)
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

// round takes the events that wait in the mailbox, and lets the machine check the clock once. A machine that has more
// work to do (a Deadline that is now) therefore alternates with the mailbox and with calls. The caller must hold the
// turn.
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
	// The timer may ring too early; this is cheaper than a reset in each round. After a system suspend, which Go's
	// timers do not count, the alarm may lie in the past while the timer still runs.
	if deadline = min(deadline, at.Add(effects.Duration(wakeMax))); !l.armed || deadline < l.alarm || l.alarm <= at {
		l.timer.Reset(time.Duration(deadline.Sub(at)))
		l.armed, l.alarm = true, deadline
	}
}

// step gives the machine an event and carries out all effects that the machine emits for the event. The caller holds
// the turn. The clock is read after the event was dequeued, so a step never uses a time before the event's arrival.
func (l *loop) step(ev effects.Event) {
	l.out.Reset()
	at := now() // The clock is read after ev was dequeued.
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

// call runs f between two steps and returns when f has run. The result is false if the loop has ended before that.
func (l *loop) call(f func()) bool {
	ran := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(ran) }:
		select {
		case <-ran:
			return true
		case <-l.ended: // The call panicked, or it was the last call that ran.
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

// end stops the loop and waits for the loop's goroutine. The call may be repeated.
func (l *loop) end() {
	l.once.Do(func() { close(l.stop) })
	<-l.ended
}
