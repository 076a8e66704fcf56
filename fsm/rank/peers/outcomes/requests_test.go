package outcomes

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

const (
	unproven = 0 // the class of a message whose stated sender is not proven
	sender   = 1
	stranger = 2
	request  = 7
)

func newRequests(max int) (*Requests, *env.Env) {
	r := (&Requests{}).Recycle(Config{Max: max, TTL: effects.Second}, 3)
	return &r, &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}}
}

// The end of an attempt ends no later attempt, whether or not its sender is proven, and whether or not the sender is
// present: the message may have been delayed until after the next attempt began.
func TestEndOfAnEarlierAttempt(t *testing.T) {
	for _, class := range []int{sender, unproven} {
		for _, lost := range []bool{false, true} {
			r, v := newRequests(8)
			r.RecordBatch(v, sender, request, 5, []byte("k"))
			if lost {
				r.OnPeerLost(sender)
			}
			if r.RecordEnd(v, class, sender, request, 4, effects.Faulted, "the first attempt") {
				t.Errorf("class %d, lost %v: the end of attempt 4 ended attempt 5", class, lost)
			}
			if _, ended := r.OutcomeOf(v.Now, request); ended {
				t.Errorf("class %d, lost %v: the request has ended", class, lost)
			}
			if class == sender && !r.RecordEnd(v, class, sender, request, 6, effects.OK, "") {
				t.Errorf("lost %v: the sender cannot end the request", lost)
			}
		}
	}
}

// A stranger ends a request only once the request's sender is gone, and changes no end that is remembered.
func TestEndOfAnotherPeersRequest(t *testing.T) {
	r, v := newRequests(8)
	r.RecordBatch(v, sender, request, 5, []byte("k"))
	if r.RecordEnd(v, stranger, stranger, request, 9, effects.Faulted, "") {
		t.Error("a stranger ended a request while its sender was present")
	}
	if !r.RecordEnd(v, sender, sender, request, 5, effects.OK, "") {
		t.Error("the sender cannot end its request")
	}
	r.OnPeerLost(sender)
	if r.RecordEnd(v, stranger, stranger, request, 9, effects.Faulted, "") {
		t.Error("a stranger changed an end that is remembered")
	}
	if o, ended := r.OutcomeOf(v.Now, request); !ended || o.Code != effects.OK || o.Class != sender {
		t.Errorf("got %+v, %v", o, ended)
	}
	if _, ended := r.OutcomeOf(v.Now.Add(effects.Second), request); ended {
		t.Error("the end is remembered for longer than its time")
	}
}
