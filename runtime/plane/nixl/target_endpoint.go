//go:build cgo && linux

package nixl

import (
	"runtime"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A targetEndpoint is a target's agent of one epoch, with the goroutine that polls the agent and destroys it when the
// target's machine decides so.
type targetEndpoint struct {
	in             *targetExecutor
	epoch          uint64        // of the epoch
	endpoint       *endpoint     // owned by the goroutine that polls the agent, once that goroutine runs
	closeRequested chan struct{} // closed when the end is to go away
	pollingDone    chan struct{} // closed when the agent is not polled any more
	busyChanged    chan struct{} // has a buffer of one; receives a value when busy has changed

	mu   sync.Mutex
	busy bool // the peer waits for the agent
}

// makeAgent makes the agent and returns the metadata that the peer needs.
func (l *targetEndpoint) makeAgent() (metadata []byte, err error) {
	p := l.in.plane
	l.endpoint, err = p.newEndpoint(agentName(l.in.Session, l.epoch, sideTarget), []plane.Region{p.pool.FirstRegion()}, nil)
	if err != nil {
		return nil, err
	}
	if metadata, err = l.endpoint.agent.Metadata(); err != nil {
		_ = l.endpoint.close() // No peer knows the agent.
	}
	return metadata, err
}

// setBusy records whether the peer waits for the agent.
func (l *targetEndpoint) setBusy(busy bool) {
	l.mu.Lock()
	l.busy = busy
	l.mu.Unlock()
	select {
	case l.busyChanged <- struct{}{}:
	default:
	}
}

// isBusy reports whether the peer waits for the agent.
func (l *targetEndpoint) isBusy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// runAgent polls the agent while the peer waits for the agent, until the endpoint is to close, and then destroys the
// agent.
func (l *targetEndpoint) runAgent() {
	failed := l.pollAgent()
	gone := l.endpoint.close()
	if gone != nil {
		l.in.Log.Warn("an agent could not be destroyed", "epoch", l.epoch, "err", gone)
	}
	// The peer is told before the machine may hang up.
	if gone == nil {
		l.in.Channel.Send(appendEpoch(nil, kindGone, l.epoch))
	}
	l.in.OnEndpointClosed(l.epoch, failed != nil, gone == nil)
	close(l.pollingDone)
}

// The pauses between two polls of an agent that a peer waits for: none at first, then shortPause, and longPause after
// manyPolls polls, because the peer is then frozen or worse.
const (
	shortPause = 50 * time.Microsecond
	longPause  = 5 * time.Millisecond
	manyPolls  = 4000
)

// expiredTimer is a timer that has always expired.
var expiredTimer = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

func (l *targetEndpoint) pollAgent() error {
	p := l.in.plane
	polls, greeted := 0, false
	for {
		var wake <-chan time.Time
		busy := l.isBusy()
		if busy {
			p.updateStats(func(s *Stats) { s.Polls++ })
		}
		switch {
		case !busy:
		case polls < fastPolls:
			wake = expiredTimer
			runtime.Gosched()
		case polls < manyPolls:
			wake = time.After(shortPause)
		default:
			wake = time.After(longPause)
		}
		select {
		case <-l.closeRequested:
			return nil
		case <-l.endpoint.agent.Ended():
			l.in.Log.Warn("an agent is gone with its process", "epoch", l.epoch)
			return nixlproc.ErrEnded
		case <-l.busyChanged:
			polls = 0
		case <-wake:
			polls++
			notices, err := l.endpoint.agent.PollNotices()
			if err != nil {
				l.in.Log.Warn("an agent failed", "epoch", l.epoch, "err", err)
				return err
			}
			// The first notice is the greeting. Later notices are ignored.
			if len(notices) > 0 && !greeted {
				greeted = true
				l.in.Channel.Send(appendEpoch(nil, kindMet, l.epoch))
			}
		}
	}
}

// StartClose implements epochs.Endpoint.
func (l *targetEndpoint) StartClose() { close(l.closeRequested) }
