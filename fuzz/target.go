package fuzz

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

// A Target is a function that reads bytes from outside, with the check of what must hold for any bytes. Use a Target in
// a native fuzz function, or pass inputs from another fuzzer to a Check of the Target.
type Target struct {
	name  string
	begin func() Check
	tags  []protocol.Tag  // of the messages that the target reads, if the target reads nothing else
	seeds func() [][]byte // returns the seeds, if the seeds do not follow from tags
}

// A Check decodes an input and returns an error if a property does not hold. It keeps a receiver between inputs, as a
// node does, and therefore belongs to a single goroutine. A Check does not recover from a panic of the code under test.
type Check func(b []byte) error

// Name returns the target's name. The name of our fuzz function for the target is Fuzz and this name.
func (t Target) Name() string { return t.name }

// Begin returns a new Check.
func (t Target) Begin() Check { return t.begin() }

// Fuzz adds the seeds and runs the target. Call Fuzz as the body of a native fuzz function:
//
//	func FuzzAllocRequest(f *testing.F) { fuzz.AllocRequest.Fuzz(f) }
func (t Target) Fuzz(f *testing.F) {
	f.Helper()
	for _, seed := range t.Seeds() {
		f.Add(seed)
	}
	check := t.begin()
	f.Fuzz(func(ft *testing.T, b []byte) {
		if err := check(b); err != nil {
			ft.Fatal(err)
		}
	})
}

// Targets returns all targets, by name.
func Targets() []Target {
	return slices.SortedFunc(slices.Values(allTargets), func(a, b Target) int { return strings.Compare(a.name, b.name) })
}

// allTargets contains every target of the package, in the order in which the package's variables are initialized.
var allTargets []Target

// registerTarget adds a target to the result of Targets.
func registerTarget(t Target) Target {
	allTargets = append(allTargets, t)
	return t
}

// statelessTarget returns the target of a check that keeps nothing between inputs. derive returns the seeds.
func statelessTarget(name string, check Check, derive func() [][]byte) Target {
	return registerTarget(Target{name: name, seeds: derive, begin: func() Check { return check }})
}
