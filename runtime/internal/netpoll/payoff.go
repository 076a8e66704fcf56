package netpoll

import (
	"sync/atomic"
	"time"
)

const (
	// payoffMax is the score of a connection for whose answers polling always paid. Each answer that came in time adds
	// one to the score, and each that did not takes one away.
	payoffMax = 8
	// retryAfter is after how many messages polling is tried again on a connection whose score is 0.
	retryAfter = 32
)

// A payoff decides whether polling for answers pays on one connection, by what came of it before. An answer is whatever
// arrives next. It is a guess: two goroutines that send at the same time may count one message twice or not at all.
type payoff struct {
	poll   time.Duration // how soon an answer must come; more than nothing
	asked  atomic.Int64  // when the oldest message left that nothing has followed yet, by clock; 0: there is none
	score  atomic.Int64
	passed atomic.Int64 // messages without polling since the last one with it
}

var began = time.Now()

// clock only goes on, and is never 0.
func clock() int64 { return int64(time.Since(began)) + 1 }

// sent notes a message that leaves at a time, and says whether to poll for its answer.
func (p *payoff) sent(now int64) bool {
	if before := p.asked.Load(); before == 0 {
		p.asked.Store(now)
	} else if now-before > int64(p.poll) {
		p.count(-1)
		p.asked.Store(now)
	}
	if p.score.Load() > 0 || p.passed.Add(1) >= retryAfter {
		p.passed.Store(0)
		return true
	}
	return false
}

// arrived notes that something has arrived.
func (p *payoff) arrived(now int64) {
	switch asked := p.asked.Swap(0); {
	case asked == 0:
	case now-asked <= int64(p.poll):
		p.count(1)
	default:
		p.count(-1)
	}
}

func (p *payoff) count(by int64) { p.score.Store(min(max(p.score.Load()+by, 0), payoffMax)) }
