package netpoll

import (
	"sync/atomic"
	"time"
)

const (
	// maxScore is the score of a connection on which polling for replies has always paid. Each reply that came in time
	// adds 1 to the score, and each late reply subtracts 1.
	maxScore = 8
	// retryAfter is the number of messages after which polling is tried again on a connection with the score 0.
	retryAfter = 32
)

// A payoff estimates whether polling for replies pays on a connection, from earlier replies. The next bytes that
// arrive count as the reply. The estimate may be slightly wrong: two goroutines that send at the same time may count a
// message twice or not at all.
type payoff struct {
	poll         time.Duration // how soon a reply must arrive; positive
	waitingSince atomic.Int64  // when the oldest message without a reply left, by clock; 0 if there is none
	score        atomic.Int64
	unpolled     atomic.Int64 // messages without polling since the last message with polling
}

var clockStart = time.Now()

// monotonicNow is monotonic and never 0.
func monotonicNow() int64 { return int64(time.Since(clockStart)) + 1 }

// recordSent records a message that leaves now, and reports whether to poll for the reply.
func (p *payoff) recordSent(now int64) bool {
	if before := p.waitingSince.Load(); before == 0 {
		p.waitingSince.Store(now)
	} else if now-before > int64(p.poll) {
		p.addToScore(-1)
		p.waitingSince.Store(now)
	}
	if p.score.Load() > 0 || p.unpolled.Add(1) >= retryAfter {
		p.unpolled.Store(0)
		return true
	}
	return false
}

// recordArrival records that something has arrived.
func (p *payoff) recordArrival(now int64) {
	switch sentAt := p.waitingSince.Swap(0); {
	case sentAt == 0:
	case now-sentAt <= int64(p.poll):
		p.addToScore(1)
	default:
		p.addToScore(-1)
	}
}

func (p *payoff) addToScore(by int64) { p.score.Store(min(max(p.score.Load()+by, 0), maxScore)) }
