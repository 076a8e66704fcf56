package runtime

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/recording"
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
	// posterPanic is the panic of another goroutine while holding the turn. Once the field is set, the machine is not
	// stepped any more.
	posterPanic *posterPanic
	out         effects.Effects
	event       effects.Event       // the event of the current step
	carriedOut  int                 // the number of the step's effects that have been carried out
	trace       *postmortem.Trace   // nil if no events are recorded
	recorder    *recording.Recorder // nil if nothing is recorded for replays
	timer       *time.Timer         // wakes the loop's goroutine
	alarmTime   effects.Time        // the time for which the timer is armed
	armed       bool

	// contain receives the value and the stack of a panic of the loop. The function runs on the loop's goroutine,
	// which ends afterwards. If contain is nil, the panic continues.
	contain func(said any, stack []string)

	// The first function returns how often the system's clock went back; the second field is that count when the loop
	// began. The third is called the first time that the count has changed.
	clockSetbacks func() uint64
	setbacksSeen  uint64
	onSetback     func()

	calls chan func()   // functions to be run between steps
	stop  chan struct{} // closed once, to end the loop
	once  sync.Once
	ended chan struct{} // closed when the loop has ended
}

// A posterPanic is the panic of a goroutine that held the turn and is not the loop's own.
type posterPanic struct {
	value any
	stack []string
	dump  []byte
}

// A driver carries out effects. The methods never block, and do not keep the effects or their slices.
type driver interface {
	carryOut(effects.Effect)
	// beforeStep receives each event just before the machine does.
	beforeStep(effects.Event)
}

// newLoop returns a loop for the machine m, which takes events from box and carries out effects by d. The caller
// starts the loop's goroutine.
func newLoop(m effects.Machine, box *mailbox, d driver) *loop {
	return &loop{machine: m, mailbox: box, driver: d, clockSetbacks: plane.ClockSetbacks, onSetback: func() {},
		timer: time.NewTimer(time.Hour), calls: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{})}
}

// run is the loop's own goroutine. The goroutine steps the machine until the loop is shut down or a panic ends the
// loop.
func (l *loop) run() {
	defer close(l.ended)
	defer l.timer.Stop()
	defer l.flushRecording()
	if l.contain != nil {
		defer func() {
			if value := recover(); value != nil {
				l.contain(value, postmortem.CallerStack())
			}
		}()
	}
	l.turn.Lock()
	l.setbacksSeen = l.clockSetbacks()
	l.mailbox.setStepFunc(l.stepByPoster)
	for {
		l.runRound()
		l.mailbox.endRound(false)
		l.turn.Unlock()
		var call func()
		alarmed, over := false, false
		select {
		case <-l.mailbox.wake:
		case <-l.timer.C:
			alarmed = true
		case call = <-l.calls:
		case <-l.stop:
			over = true
		}
		// The mutex stays locked where this function returns, so that an ended loop is never stepped.
		l.turn.Lock()
		switch f := l.posterPanic; {
		case f != nil && l.contain == nil:
			panic(fmt.Sprintf("%v\n\n%s", f.value, f.dump))
		case f != nil:
			l.contain(f.value, f.stack)
			return
		case over:
			return
		case alarmed:
			l.armed = false
		case call != nil:
			call()
		}
	}
}

// flushRecording writes what was recorded, and saves the recording after a failed assertion, because the last steps are
// those that explain it: the ring of a node that is started again in the same process goes on.
func (l *loop) flushRecording() {
	switch {
	case l.recorder == nil:
	case l.event != nil: // A step has panicked.
		_, _ = saveRecording(l, recording.OnFailure) // The log has the error.
	default:
		l.recorder.Flush(recordingTimeout)
	}
}

// posterRoundsMax limits the number of rounds for which a goroutine that has posted an event steps the machine.
// Remaining work is left to the loop's own goroutine.
const posterRoundsMax = 4

// stepByPoster steps the machine on the calling goroutine, unless another goroutine holds the turn. That goroutine
// checks the mailbox again before releasing the turn.
func (l *loop) stepByPoster() {
	if !l.turn.TryLock() {
		l.mailbox.wakeIfPending()
		return
	}
	defer l.turn.Unlock()
	if l.posterPanic != nil {
		return
	}
	ended := false
	defer func() {
		if value := recover(); value != nil {
			// A defect of the machine must not surface as a panic of the engine's goroutine, which might recover and
			// continue. The loop's goroutine may be waiting for the turn, or has to be woken.
			l.posterPanic = &posterPanic{value, postmortem.CallerStack(), debug.Stack()}
			l.mailbox.requestRound()
		}
		if !ended {
			// This also runs if the called code has ended the goroutine (runtime.Goexit).
			l.mailbox.endRound(false)
		}
	}()
	for n := 1; ; n++ {
		l.runRound()
		if !l.mailbox.endRound(n < posterRoundsMax) {
			break
		}
	}
	ended = true
}

// runRound takes the events that wait in the mailbox, and lets the machine check the clock once. A machine that has
// more work to do (a Deadline that is now) therefore alternates with the mailbox and with calls. The caller must hold
// the turn.
func (l *loop) runRound() {
	l.mailbox.beginRound()
	for _, ev := range l.mailbox.takeEvents() {
		l.stepMachine(ev)
	}
	if l.onSetback != nil && l.clockSetbacks() != l.setbacksSeen {
		l.onSetback()
		l.onSetback = nil
	}
	deadline, ok := l.machine.Deadline()
	if !ok {
		return
	}
	at := now()
	if deadline <= at {
		l.stepMachine(&effects.Tick{})
		l.mailbox.requestRound()
		return
	}
	// The timer may ring too early; this is cheaper than a reset in each round. After a system suspend, which Go's
	// timers do not count, the alarm may lie in the past while the timer still runs.
	if deadline = min(deadline, at.Add(effects.Duration(sleepMax))); !l.armed || deadline < l.alarmTime || l.alarmTime <= at {
		l.timer.Reset(time.Duration(deadline.Sub(at)))
		l.armed, l.alarmTime = true, deadline
	}
}

// stepMachine gives the machine an event and carries out all effects that the machine emits for the event. The caller
// holds the turn. The clock is read after the event was dequeued, so a step never uses a time before the event's
// arrival.
func (l *loop) stepMachine(ev effects.Event) {
	l.out.Reset()
	at := now() // The clock is read after ev was dequeued.
	l.event, l.carriedOut = ev, 0
	if l.trace != nil {
		l.trace.RecordEvent(at, ev)
	}
	if l.recorder != nil {
		l.recorder.RecordEvent(at, ev)
	}
	l.driver.beforeStep(ev)
	l.machine.Step(at, ev, &l.out)
	if l.recorder != nil {
		l.recorder.RecordEffects(&l.out) // Before the driver fills pages into messages.
	}
	for i := range l.out.Len() {
		e := l.out.At(i)
		if l.trace != nil {
			l.trace.RecordEffect(e)
		}
		l.driver.carryOut(e)
		l.carriedOut++
	}
	l.event = nil
}

// runBetween runs f between two steps and returns when f has run. The result is false if the loop has ended before
// that.
func (l *loop) runBetween(f func()) bool { return l.runBetweenUntil(bg, f) }

// runBetweenUntil does the same, but waits at most until ctx ends. If the result is false because of ctx, f may run
// later.
func (l *loop) runBetweenUntil(ctx context.Context, f func()) bool {
	ran := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(ran) }:
		select {
		case <-ran:
			return true
		case <-l.ended: // The call panicked, or it was the last call that ran.
		case <-ctx.Done():
		}
		select {
		case <-ran:
			return true
		default:
			return false
		}
	case <-l.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

// shutDown stops the loop and waits for the loop's goroutine. The call may be repeated.
func (l *loop) shutDown() {
	l.once.Do(func() { close(l.stop) })
	<-l.ended
}
