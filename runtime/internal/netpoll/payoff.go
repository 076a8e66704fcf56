package netpoll

import (
	"sync/atomic"
	"time"
)

const (
	// maxScore is the score of a connection for whose replies polling has always paid. Each reply that came in time
	// adds one to the score, and each one that did not takes one away.
	payoffMax = 8
	// retryAfter is the number of messages after which polling is tried again on a connection whose score is 0.
	retryAfter = 32
)

// A payoff estimates whether polling for replies pays on one connection, from what happened before. It takes whatever
// arrives next for the reply. The estimate may be slightly wrong: two goroutines that send at the same time may count
// one message twice or not at all.
type payoff struct {
	poll   time.Duration // how soon a reply must arrive; positive
	asked  atomic.Int64  // when the oldest message left that nothing has followed yet, by clock; 0 if there is none
	score  atomic.Int64
	passed atomic.Int64 // messages without polling since the last one with polling
}

var began = time.Now()

// clock is monotonic and never 0.
func clock() int64 { return int64(time.Since(began)) + 1 }

// sent records a message that leaves now, and reports whether to poll for its reply.
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

// arrived records that something has arrived.
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
