//go:build cgo && linux

package nixl

import (
	"runtime"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/plane"
)

// A targetEnd is a target's agent of one epoch, with the goroutine that polls the agent and destroys it when the
// target's machine decides so.
type targetEnd struct {
	in     *incoming
	number uint64        // of the epoch
	end    *end          // owned by the goroutine that polls the agent, once that goroutine runs
	leave  chan struct{} // closed when the end is to go away
	done   chan struct{} // closed when the agent is not polled any more
	orders chan struct{} // has a buffer of one; receives a value when busy has changed

	mu   sync.Mutex
	busy bool // the peer waits for the agent
}

// make makes the agent and returns the metadata that the peer needs.
func (l *targetEnd) make() (metadata []byte, err error) {
	p := l.in.plane
	l.end, err = p.makeEnd(agentOf(l.in.Session, l.number, atTarget), []plane.Region{p.pool.Served()})
	if err != nil {
		return nil, err
	}
	if metadata, err = l.end.agent.Metadata(); err != nil {
		_ = l.end.close() // No peer knows the agent.
	}
	return metadata, err
}

// setBusy records whether the peer waits for the agent.
func (l *targetEnd) setBusy(busy bool) {
	l.mu.Lock()
	l.busy = busy
	l.mu.Unlock()
	select {
	case l.orders <- struct{}{}:
	default:
	}
}

// isBusy reports whether the peer waits for the agent.
func (l *targetEnd) isBusy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// lead polls the agent while the peer waits for the agent, until the endpoint is to close, and then destroys the
// agent.
func (l *targetEnd) lead() {
	failed := l.serve()
	gone := l.end.close()
	if gone != nil {
		l.in.Log.Warn("an agent could not be destroyed", "epoch", l.number, "err", gone)
	}
	// The peer is told before the machine may hang up.
	if gone == nil {
		l.in.Channel.Send(appendEpoch(nil, kindGone, l.number))
	}
	l.in.EndFinished(l.number, failed != nil, gone == nil)
	close(l.done)
}

// The pauses between two polls of an agent that a peer waits for: none at first, then shortPause, and longPause after
// manyPolls polls, because the peer is then frozen or worse.
const (
	shortPause = 50 * time.Microsecond
	longPause  = 5 * time.Millisecond
	manyPolls  = 4000
)

// atOnce is a timer that has always expired.
var atOnce = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

func (l *targetEnd) serve() error {
	p := l.in.plane
	asked, met := 0, false
	for {
		var wake <-chan time.Time
		busy := l.isBusy()
		if busy {
			p.count(func(s *Stats) { s.Polls++ })
		}
		switch {
		case !busy:
		case asked < briskLooks:
			wake = atOnce
			runtime.Gosched()
		case asked < manyPolls:
			wake = time.After(shortPause)
		default:
			wake = time.After(longPause)
		}
		select {
		case <-l.leave:
			return nil
		case <-l.orders:
			asked = 0
		case <-wake:
			asked++
			notices, err := l.end.agent.Notices()
			if err != nil {
				l.in.Log.Warn("an agent failed", "epoch", l.number, "err", err)
				return err
			}
			// The first notice is the greeting. Later notices are ignored.
			if len(notices) > 0 && !met {
				met = true
				l.in.Channel.Send(appendEpoch(nil, kindMet, l.number))
			}
		}
	}
}

// Leave implements epochs.End.
func (l *targetEnd) Leave() { close(l.leave) }
