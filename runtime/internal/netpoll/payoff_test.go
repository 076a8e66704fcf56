package netpoll

import (
	"testing"
	"time"
)

// One step of a connection's life: a message leaves, and something arrives so long after it; 0: nothing does until the
// next one leaves.
type exchange struct {
	answered time.Duration
	polls    bool // for the answer
}

func TestPollingStopsWhereItDoesNotPay(t *testing.T) {
	const poll = 100 * time.Microsecond
	p := payoff{poll: poll}
	p.score.Store(payoffMax)
	now := int64(1)
	play := func(what string, times int, x exchange) {
		t.Helper()
		for i := range times {
			if got := p.sent(now); got != x.polls {
				t.Fatalf("%s, message %d: polls %v, score %d", what, i, got, p.score.Load())
			}
			if now += int64(x.answered); x.answered > 0 {
				p.arrived(now)
			}
			now += int64(time.Second)
		}
	}
	play("answers in time", 20, exchange{poll, true})
	play("answers that are late", payoffMax, exchange{poll + 1, true})
	play("late ones after that", retryAfter-1, exchange{poll + 1, false})
	play("one is tried again", 1, exchange{time.Microsecond, true})
	play("it was in time", 1, exchange{poll, true})
	play("nothing comes", 1, exchange{0, true})
	play("nothing comes, which the next one shows", 1, exchange{0, true})
	p.sent(now) // The score is 0 from here on.
	play("nothing comes, and nothing is polled", retryAfter-2, exchange{0, false})
}

// Messages that follow each other closely, to a peer that never says anything, are not polled after for ever.
func TestPollingStopsWhereNobodyAnswers(t *testing.T) {
	const poll = 100 * time.Microsecond
	p := payoff{poll: poll}
	p.score.Store(payoffMax)
	polled := 0
	for n := range int64(1000) {
		if p.sent(1 + n*int64(poll)/2) {
			polled++
		}
	}
	if most := 4*payoffMax + 1000/retryAfter; polled > most {
		t.Errorf("polled after %d of 1,000 messages, want at most %d", polled, most)
	}
}

// A score is neither below nothing nor so high that it takes long to fall.
func TestScoreIsBounded(t *testing.T) {
	p := payoff{poll: time.Microsecond}
	for _, by := range []int64{1, -1} {
		for range 1000 {
			p.count(by)
		}
		if got, want := p.score.Load(), max(by, 0)*payoffMax; got != want {
			t.Errorf("%d instead of %d", got, want)
		}
	}
}

// Something that arrives unasked says nothing about polling.
func TestWhatComesUnaskedDoesNotCount(t *testing.T) {
	p := payoff{poll: time.Microsecond}
	p.arrived(5)
	p.arrived(6)
	if p.score.Load() != 0 {
		t.Error("it was counted")
	}
}
