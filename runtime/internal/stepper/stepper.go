// Package stepper lets a goroutine that posts events step the machine that receives the events. That saves waking the
// machine's own goroutine, which takes longer than most steps.
package stepper

// A Stepper is a sink of events that lets the posting goroutines step the machine.
//
// A goroutine calls Hold, posts events, and calls Step. Between the two calls, posting wakes no other goroutine. Step
// steps the machine with all waiting events on the caller's goroutine, unless another goroutine is stepping the
// machine; then that goroutine processes the events. The caller of Step must not hold a lock that an effect of the
// machine may need, and must not block between Hold and Step, except in a Post that waits for room.
//
// Example, in a goroutine that reads replies from a socket:
//
//	s := stepper.ForSink(sink)
//	s.Hold()
//	sink.Post(&effects.Replied{...})
//	s.Step() // The machine has processed the reply, unless another goroutine is stepping the machine.
type Stepper interface {
	Hold()
	Step()
}

// ForSink returns the sink as a Stepper. If the sink is not a Stepper, the returned Stepper does nothing, and the
// sink's own goroutine processes the events.
func ForSink(sink any) Stepper {
	if s, ok := sink.(Stepper); ok {
		return s
	}
	return noStepper{}
}

type noStepper struct{}

func (noStepper) Hold() {}
func (noStepper) Step() {}
