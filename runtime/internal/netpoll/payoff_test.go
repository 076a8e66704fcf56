package netpoll

import (
	"testing"
	"time"
)

// One step of a connection: a message leaves, and something arrives so long after it. If that is 0, nothing arrives
// until the next message leaves.
type exchange struct {
	answered time.Duration
	polls    bool // for the reply
}

func TestPollingStopsWhereItDoesNotPay(t *testing.T) {
	const poll = 100 * time.Microsecond
	p := payoff{poll: poll}
	p.score.Store(maxScore)
	now := int64(1)
	play := func(what string, times int, x exchange) {
		t.Helper()
		for i := range times {
			if got := p.recordSent(now); got != x.polls {
				t.Fatalf("%s, message %d: polls %v, score %d", what, i, got, p.score.Load())
			}
			if now += int64(x.answered); x.answered > 0 {
				p.recordArrival(now)
			}
			now += int64(time.Second)
		}
	}
	play("answers in time", 20, exchange{poll, true})
	play("answers that are late", maxScore, exchange{poll + 1, true})
	play("late ones after that", retryAfter-1, exchange{poll + 1, false})
	play("one is tried again", 1, exchange{time.Microsecond, true})
	play("it was in time", 1, exchange{poll, true})
	play("nothing comes", 1, exchange{0, true})
	play("nothing comes, which the next one shows", 1, exchange{0, true})
	p.recordSent(now) // The score is 0 from here on.
	play("nothing comes, and nothing is polled", retryAfter-2, exchange{0, false})
}

// After messages that follow each other closely, to a peer that never sends anything, polling stops.
func TestPollingStopsWithoutReplies(t *testing.T) {
	const poll = 100 * time.Microsecond
	p := payoff{poll: poll}
	p.score.Store(maxScore)
	polled := 0
	for n := range int64(1000) {
		if p.recordSent(1 + n*int64(poll)/2) {
			polled++
		}
	}
	if most := 4*maxScore + 1000/retryAfter; polled > most {
		t.Errorf("polled after %d of 1,000 messages, want at most %d", polled, most)
	}
}

// A score is neither negative nor so high that it takes long to fall.
func TestScoreIsBounded(t *testing.T) {
	p := payoff{poll: time.Microsecond}
	for _, by := range []int64{1, -1} {
		for range 1000 {
			p.addToScore(by)
		}
		if got, want := p.score.Load(), max(by, 0)*maxScore; got != want {
			t.Errorf("%d instead of %d", got, want)
		}
	}
}

// Something that arrives without a message before it does not change the score.
func TestUnsolicitedMessagesDoNotCount(t *testing.T) {
	p := payoff{poll: time.Microsecond}
	p.recordArrival(5)
	p.recordArrival(6)
	if p.score.Load() != 0 {
		t.Error("it was counted")
	}
}
