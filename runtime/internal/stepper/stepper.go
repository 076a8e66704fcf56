// Package stepper lets a goroutine that posts events step the machine that they are for. It saves the wake-up of the
// machine's own goroutine, which takes longer than most steps.
package stepper

// A Stepper is a sink of events whose machine the goroutines that post can step.
//
// A goroutine calls Hold, posts, and calls Step. Between the two, posting wakes nobody. Step steps the machine with
// what waits, on the caller's goroutine, unless another one is stepping it: then that one goes on. The caller of Step
// holds no lock that anything takes which the machine may want done, and between Hold and Step nothing blocks but a
// Post that has to wait for room.
type Stepper interface {
	Hold()
	Step()
}

// Of returns the sink as a Stepper. If it is none the result does nothing, and each event is taken by whoever takes
// those of the sink.
func Of(sink any) Stepper {
	if s, ok := sink.(Stepper); ok {
		return s
	}
	return none{}
}

type none struct{}

func (none) Hold() {}
func (none) Step() {}
