//go:build cgo && linux

package hostile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// A process that is stopped takes part in nothing, and its clocks go on: when it runs again, they have jumped. It is
// stopped for longer than the grants that it holds, or that it has given, last.
const (
	suspendedFor = 700 * time.Millisecond // hasty's lease is over by then
	putsAtATime  = 6                      // nobody waits for their chunks, and the pool has room for some
)

// suspend stops the process for a while, and says when it went on.
func (v *victim) suspend(after time.Duration) (resumed time.Time) {
	time.Sleep(after) // Each time it is somewhere else.
	v.Signal(syscall.SIGSTOP)
	time.Sleep(suspendedFor)
	resumed = time.Now()
	v.Signal(syscall.SIGCONT)
	return resumed
}

func (b batch) order() string {
	text, _ := json.Marshal(b) // It has nothing that JSON has not.
	return putMany + string(text)
}

// suspendSender has a sender that is a process of its own put to the victim, and stops it somewhere in between.
func suspendSender(x *attack) error {
	p := startVictim(x.t, setup{Role: "sender"}, nil)
	p.says(batch{x.v.peer, "first", 1}.order())
	x.v.says(batch{Name: "first"}.key(0))
	for round := 0; x.more(); round++ {
		b := batch{x.v.peer, fmt.Sprint("stopped", round), putsAtATime}
		var answered sync.WaitGroup
		answered.Go(func() { p.says(b.order()) })
		resumed := p.suspend(time.Duration(round%10) * time.Millisecond)
		answered.Wait()
		next := batch{x.v.peer, fmt.Sprint("again", round), 1}
		if a := p.says(next.order()); a.Failed > 0 {
			return errors.New("resumed, its put failed: " + a.Problems)
		}
		x.again = max(x.again, time.Since(resumed))
		for i := range b.Count { // What came of its puts, before and after, is right.
			x.wrong += x.v.says(getNow + b.key(i)).Wrong
		}
		x.wrong += x.v.says(next.key(0)).Wrong
		x.done.Add(1)
	}
	return nil
}

// suspendReceiver stops the victim while the honest sender puts to it, too.
func suspendReceiver(x *attack) error {
	for round := 0; x.more(); round++ {
		b := batch{x.v.peer, fmt.Sprint("stopped", round), putsAtATime}
		var answered sync.WaitGroup
		answered.Go(func() {
			for i := range b.Count {
				_ = putOne(x.h.n, b.To, b.key(i), suspendedFor/putsAtATime) // It may fail, and it may arrive.
			}
		})
		resumed := x.v.suspend(time.Duration(round%10) * time.Millisecond)
		answered.Wait()
		next := batch{x.v.peer, fmt.Sprint("again", round), 1}
		if err := putOne(x.h.n, next.To, next.key(0), time.Minute); err != nil {
			return fmt.Errorf("a put to it when it was resumed: %w", err)
		}
		x.again = max(x.again, time.Since(resumed))
		for i := range b.Count {
			x.wrong += x.v.says(getNow + b.key(i)).Wrong
		}
		x.wrong += x.v.says(next.key(0)).Wrong
		x.done.Add(1)
	}
	return nil
}
