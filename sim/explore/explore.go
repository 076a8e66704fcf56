// Package explore tries every order of events in a small world. A [Scope] describes the world: a few nodes and jobs,
// and the faults that may strike. [Explore] searches all states that the world can reach, and [RetracePath] repeats a
// path.
//
// The explorer moves from state to state by choices: a message arrives, a deadline passes, or a fault strikes. The
// explorer clones the world for each choice, and the oracles of campaigns judge each state. States that differ only in
// details that no machine can observe count as the same state.
//
// A caller may rely on the following: an exploration that is complete has tried every order that the scope allows; and
// the path of a violation leads to the same violation as long as scope and code stay the same.
//
// Example: a scope has one sender, one receiver and one job, and the receiver may crash.
//
//  1. In the first state the only choice, apart from a crash of the receiver, is that the engine gives its command.
//  2. While the allocation request is in flight there are these choices: the request arrives; the receiver crashes
//     before that; or the request arrives and the receiver crashes after the nth effect of the resulting step.
//  3. Each choice leads to a state, in which the oracles look for a broken promise. A state that was met before
//     is not searched again.
//  4. Where only faults can happen, if anything, the world is brought to rest as at the end of a run: all commands must
//     have ended, nothing may be left, and a further transfer must succeed.
//  5. If a promise is broken, the explorer looks for a shorter path to a broken promise and returns the path, such as
//     "0.2.0.1": the position of the choice taken in each state.
package explore

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Explore tries every order in which things can happen in a scope. Explore searches depth first, clones the state for
// each choice, and continues only from states that it has not met before. In each state the same oracles judge as in a
// campaign. Where nothing but faults can happen, every command must have ended, nothing may be left, and a further
// transfer must succeed. A broken promise is returned as the Violation. Explore returns an error if the scope cannot be
// run, or if the path to the broken promise cannot be repeated.
//
// States are distinguished by hashes of 64 bits. Among ten million different states, the probability that any two have
// the same hash is 1 : 300,000.
func Explore(o Options) (Exploration, error) {
	root, err := o.Scope.newState()
	if err != nil {
		return Exploration{}, err
	}
	x := &explorer{options: o, hasher: newStateHasher(root.run), seen: map[uint64]int32{}, result: Exploration{Scope: o.Scope.Name}}
	if x.options.States == 0 {
		x.options.States = StatesMax
	}
	start := time.Now()
	x.searchFrom(root)
	x.result.Coverage = root.w.Result.Coverage
	if x.broken {
		x.shortenPath()
		x.result.Violation, err = RetracePath(o.Scope, x.path, nil)
	}
	x.result.Elapsed = time.Since(start)
	x.result.Complete = x.result.CutReason == "" && !x.broken
	return x.result, err
}

// explorer carries out an exploration.
type explorer struct {
	options      Options
	hasher       *stateHasher
	seen         map[uint64]int32 // by hash of a state: the smallest depth at which the state was met
	stack        []frame          // the states on the current path
	result       Exploration
	depthReached bool // a path reached the maximum depth (Options.Depth)

	transitionsMax int               // limit of transitions; 0: no limit
	onFinalState   func(hash uint64) // of tests; nil otherwise
	broken         bool
	path           Path // to the first broken promise
}

// frame is a state on the current path, and the next choice to try there.
type frame struct {
	state   *state
	choices []choice
	next    int
}

// searchFrom explores everything that can be reached from root.
func (x *explorer) searchFrom(root *state) {
	x.stack = x.stack[:0]
	x.enterState(root)
	for len(x.stack) > 0 && !x.broken {
		f := &x.stack[len(x.stack)-1]
		if f.next == len(f.choices) {
			*f = frame{choices: f.choices[:0]}
			x.stack = x.stack[:len(x.stack)-1]
			continue
		}
		if x.transitionsMax > 0 && x.result.Transitions >= x.transitionsMax {
			x.result.CutReason = fmt.Sprintf("%d transitions", x.transitionsMax)
			break
		}
		if len(x.seen) >= x.options.States {
			x.result.CutReason = fmt.Sprintf("%d states", x.options.States)
			break
		}
		c := f.choices[f.next]
		f.next++
		child := f.state
		if f.next < len(f.choices) { // The last choice may use the state itself.
			child = x.hasher.cloneState(f.state)
		}
		if !x.tryChoice(child, c) {
			f.skipCrashes(c)
			continue
		}
		x.result.Transitions++
		if x.options.Progress != nil && x.result.Transitions%1024 == 0 {
			x.result.States = len(x.seen)
			if !x.options.Progress(&x.result) {
				x.result.CutReason = fmt.Sprintf("%d states, by request", len(x.seen))
				break
			}
		}
		x.enterState(child)
	}
	x.result.States = len(x.seen)
	if x.depthReached && x.result.CutReason == "" {
		x.result.CutReason = fmt.Sprintf("depth %d", x.options.Depth)
	}
}

// skipCrashes skips the crashes after later effects of a step: a crash after the nth effect does not exist if the step
// has fewer effects.
func (f *frame) skipCrashes(c choice) {
	for f.next < len(f.choices) && f.choices[f.next].move == moveCrashIn && f.choices[f.next].seq == c.seq &&
		f.choices[f.next].node == c.node {
		f.next++
	}
}

// tryChoice makes a choice and reports whether the choice exists. A panic of a machine is recorded as a failure of the
// world.
func (x *explorer) tryChoice(b *state, c choice) (made bool) {
	defer func() {
		if p := recover(); p != nil {
			made = true
			b.w.Failure = nil
			b.w.Fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	return b.applyChoice(&x.options.Scope, c)
}

// enterState pushes b onto the stack, so that its choices are tried, unless b was met before at no greater depth. It
// records a failure of b.
func (x *explorer) enterState(b *state) {
	depth := len(x.stack)
	x.result.Depth = max(x.result.Depth, depth)
	if b.w.Failure != nil {
		x.recordFailure()
		return
	}
	h := x.hasher.hashState(b)
	if earlierDepth, ok := x.seen[h]; ok && (x.options.Depth == 0 || int(earlierDepth) <= depth) {
		return
	}
	x.seen[h] = int32(depth)
	if x.options.Depth > 0 && depth >= x.options.Depth {
		x.depthReached = true
		return
	}
	if len(x.stack) < cap(x.stack) {
		x.stack = x.stack[:depth+1]
	} else {
		x.stack = append(x.stack, frame{})
	}
	f := &x.stack[depth]
	f.state, f.next = b, 0
	f.choices = b.listChoices(&x.options.Scope, f.choices[:0])
	if len(f.choices) == 0 || f.choices[0].isFault() { // Faults come last in the list.
		x.result.FinalStates++
		if x.onFinalState != nil {
			x.onFinalState(h)
		}
		final := x.hasher.cloneState(b)
		if final.runToEnd(); final.w.Failure != nil {
			x.recordFailure()
		}
	}
}

// recordFailure records the current path as the path to a broken promise.
func (x *explorer) recordFailure() {
	x.broken, x.path = true, nil
	for _, f := range x.stack {
		if f.next > 0 { // In the last state no choice was made if the failure occurred at rest.
			x.path = append(x.path, f.next-1)
		}
	}
}

// runToEnd brings a world in which nothing but faults can happen to its end as a campaign does: all commands must have
// ended, and transfers must succeed again.
func (b *state) runToEnd() {
	w := b.w
	defer func() {
		if p := recover(); p != nil {
			w.Failure = nil
			w.Fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	for _, phase := range []func(){w.HealAll, w.FinishCommands, w.RunProbes, w.RunExpiry, w.DrainAll} {
		w.Journal.AddLine(w.Now, world.KindPhase, plan.NoNode, 0, 0, 0)
		if phase(); w.Failure != nil {
			return
		}
	}
}

// shortenMax limits the search for a shorter path, in transitions.
const shortenMax = 400_000

// shortenPath looks for a shorter path to a broken promise, because the first path that a depth-first search finds is
// long. The promise that the shorter path breaks may be another one.
func (x *explorer) shortenPath() {
	for transitionsLeft := shortenMax; len(x.path) > 1 && transitionsLeft > 0; {
		root, err := x.options.Scope.newState()
		if err != nil {
			return
		}
		shorter := &explorer{options: x.options, hasher: x.hasher, seen: map[uint64]int32{}, transitionsMax: transitionsLeft}
		shorter.options.Depth, shorter.options.States = len(x.path)-1, StatesMax
		shorter.searchFrom(root)
		if !shorter.broken {
			return
		}
		transitionsLeft -= shorter.result.Transitions
		x.path = shorter.path
	}
}
