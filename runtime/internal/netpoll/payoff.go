package netpoll

import (
	"sync/atomic"
	"time"
)

const (
	// maxScore is the score of a connection for whose replies polling has always paid. Each reply that came in time
	// adds one to the score, and each one that did not takes one away.
	maxScore = 8
	// retryAfter is the number of messages after which polling is tried again on a connection whose score is 0.
	retryAfter = 32
)

// A payoff estimates whether polling for replies pays on one connection, from what happened before. It takes whatever
// arrives next for the reply. The estimate may be slightly wrong: two goroutines that send at the same time may count
// one message twice or not at all.
type payoff struct {
	poll         time.Duration // how soon a reply must arrive; positive
	waitingSince atomic.Int64  // when the oldest message left that nothing has followed yet, by clock; 0 if there is none
	score        atomic.Int64
	passed       atomic.Int64 // messages without polling since the last one with polling
}

var began = time.Now()

// clock is monotonic and never 0.
func clock() int64 { return int64(time.Since(began)) + 1 }

// recordSent records a message that leaves now, and reports whether to poll for its reply.
func (p *payoff) recordSent(now int64) bool {
	if before := p.waitingSince.Load(); before == 0 {
		p.waitingSince.Store(now)
	} else if now-before > int64(p.poll) {
		p.addToScore(-1)
		p.waitingSince.Store(now)
	}
	if p.score.Load() > 0 || p.passed.Add(1) >= retryAfter {
		p.passed.Store(0)
		return true
	}
	return false
}

// recordArrival records that something has arrived.
func (p *payoff) recordArrival(now int64) {
	switch asked := p.waitingSince.Swap(0); {
	case asked == 0:
	case now-asked <= int64(p.poll):
		p.addToScore(1)
	default:
		p.addToScore(-1)
	}
}

func (p *payoff) addToScore(by int64) { p.score.Store(min(max(p.score.Load()+by, 0), maxScore)) }
