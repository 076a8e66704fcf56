// Package stepper lets a goroutine that posts events step the machine that they are for. That saves waking the
// machine's own goroutine, which takes longer than most steps.
package stepper

// A Stepper is a sink of events whose machine can be stepped by the goroutines that post.
//
// A goroutine calls Hold, posts events, and calls Step. Between the two calls, posting wakes no other goroutine. Step
// steps the machine with all waiting events on the caller's goroutine, unless another goroutine is stepping it; then
// that one processes them. The caller of Step must not hold a lock that an effect of the machine may need, and
// between Hold and Step it must not block, except in a Post that waits for room.
//
// Example, in a goroutine that reads replies from a socket:
//
//	s := stepper.Of(sink)
//	s.Hold()
//	sink.Post(&effects.Replied{...})
//	s.Step() // The machine has processed the reply, unless another goroutine is stepping it.
type Stepper interface {
	Hold()
	Step()
}

// Of returns the sink as a Stepper. If the sink is none, the returned Stepper does nothing, and the sink's own
// goroutine processes the events.
func Of(sink any) Stepper {
	if s, ok := sink.(Stepper); ok {
		return s
	}
	return none{}
}

type none struct{}

func (none) Hold() {}
func (none) Step() {}
