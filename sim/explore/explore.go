// Package explore tries every order of events in a small world. A [Scope] describes the world: a few nodes and jobs,
// and the faults that may strike. [Explore] searches all situations that the world can reach, and [Retrace] repeats a
// path.
//
// The explorer moves from situation to situation by choices: a message arrives, a deadline passes, or a fault strikes.
// The explorer clones the world for each choice and judges each situation with the same oracles as a run. Situations
// that differ only in details that no machine can observe count as the same situation.
//
// A caller may rely on the following: an exploration that is complete has tried every order that the scope allows; and
// the path of a violation leads to the same violation as long as scope and code stay the same.
//
// Example: a scope has one sender, one receiver and one job, and the receiver may crash.
//
//  1. In the first situation the only choice, apart from a crash of the receiver, is that the engine gives its command.
//  2. While the allocation request is in flight there are these choices: the request arrives; the receiver crashes
//     before that; or the request arrives and the receiver crashes after the nth effect of the resulting step.
//  3. Each choice leads to a situation, in which the oracles look for a broken promise. A situation that was met before
//     is not searched again.
//  4. Where nothing but faults can happen any more, the world is brought to rest as at the end of a run: all commands
//     must have ended, nothing may be left, and a further transfer must succeed.
//  5. If a promise is broken, the explorer looks for a shorter path to a broken promise and returns the path, such as
//     "0.2.0.1": the position of the choice taken in each situation.
package explore

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Explore tries every order in which things can happen in a scope. Explore searches depth first, clones the situation
// for each choice, and continues only from situations that it has not met before. In each situation the same oracles
// judge as in a campaign. Where nothing can happen any more, every command must have ended, nothing may be left, and a
// further transfer must succeed. Explore returns an error if the scope cannot be run; a broken promise is returned as
// the Violation.
//
// Situations are distinguished by hashes of 64 bits. Among ten million different situations, the probability that two
// have the same hash is 1 : 300,000.
func Explore(o Options) (Exploration, error) {
	root, err := o.Scope.begin()
	if err != nil {
		return Exploration{}, err
	}
	x := &explorer{o: o, shape: newShape(root.run), seen: map[uint64]int32{}, found: Exploration{Scope: o.Scope.Name}}
	if x.o.States == 0 {
		x.o.States = StatesMax
	}
	start := time.Now()
	x.search(root)
	x.found.Coverage = root.w.Result.Coverage
	if x.broken {
		x.shorten()
		x.found.Violation, err = Retrace(o.Scope, x.path, nil)
	}
	x.found.Took = time.Since(start)
	x.found.Complete = x.found.Cut == "" && !x.broken
	return x.found, err
}

// explorer is the state of an exploration.
type explorer struct {
	o     Options
	shape *shape
	seen  map[uint64]int32 // by hash: the depth at which a situation was met
	stack []frame
	found Exploration
	cut   bool // a path reached the maximum depth

	most   int               // limit of transitions; 0: no limit
	onEnd  func(hash uint64) // of tests; nil otherwise
	broken bool
	path   Path // to the first broken promise
}

// frame is a situation on the current path.
type frame struct {
	b       *branch
	choices []choice
	next    int
}

// search explores everything that can be reached from root.
func (x *explorer) search(root *branch) {
	x.stack = x.stack[:0]
	x.enter(root)
	for len(x.stack) > 0 && !x.broken {
		f := &x.stack[len(x.stack)-1]
		if f.next == len(f.choices) {
			*f = frame{choices: f.choices[:0]}
			x.stack = x.stack[:len(x.stack)-1]
			continue
		}
		if x.most > 0 && x.found.Transitions >= x.most {
			x.found.Cut = fmt.Sprintf("%d transitions", x.most)
			break
		}
		if len(x.seen) >= x.o.States {
			x.found.Cut = fmt.Sprintf("%d states", x.o.States)
			break
		}
		c := f.choices[f.next]
		f.next++
		child := f.b
		if f.next < len(f.choices) { // The last choice may use the situation itself.
			child = x.shape.clone(f.b)
		}
		if !x.try(child, c) {
			f.skip(c)
			continue
		}
		x.found.Transitions++
		if x.o.Progress != nil && x.found.Transitions%1024 == 0 {
			x.found.States = len(x.seen)
			if !x.o.Progress(&x.found) {
				x.found.Cut = fmt.Sprintf("%d states, by request", len(x.seen))
				break
			}
		}
		x.enter(child)
	}
	x.found.States = len(x.seen)
	if x.cut && x.found.Cut == "" {
		x.found.Cut = fmt.Sprintf("depth %d", x.o.Depth)
	}
}

// skipCrashes skips the crashes after further effects of a step that has no further effects.
func (f *frame) skip(c choice) {
	for f.next < len(f.choices) && f.choices[f.next].move == moveCrashIn && f.choices[f.next].seq == c.seq &&
		f.choices[f.next].node == c.node {
		f.next++
	}
}

// tryChoice makes a choice and reports whether the choice exists. A machine that panics has broken an invariant, which
// is a finding.
func (x *explorer) try(b *branch, c choice) (made bool) {
	defer func() {
		if p := recover(); p != nil {
			made = true
			b.w.Failure = nil
			b.w.Fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	return b.apply(&x.o.Scope, c)
}

// enter continues from b, unless b was met before.
func (x *explorer) enter(b *branch) {
	depth := len(x.stack)
	x.found.Depth = max(x.found.Depth, depth)
	if b.w.Failure != nil {
		x.fail()
		return
	}
	h := x.shape.hash(b)
	if was, ok := x.seen[h]; ok && (x.o.Depth == 0 || int(was) <= depth) {
		return
	}
	x.seen[h] = int32(depth)
	if x.o.Depth > 0 && depth >= x.o.Depth {
		x.cut = true
		return
	}
	if len(x.stack) < cap(x.stack) {
		x.stack = x.stack[:depth+1]
	} else {
		x.stack = append(x.stack, frame{})
	}
	f := &x.stack[depth]
	f.b, f.next = b, 0
	f.choices = b.choices(&x.o.Scope, f.choices[:0])
	if len(f.choices) == 0 || f.choices[0].fault() {
		x.found.Ends++
		if x.onEnd != nil {
			x.onEnd(h)
		}
		rest := x.shape.clone(b)
		if rest.rest(); rest.w.Failure != nil {
			x.fail()
		}
	}
}

// fail records the current path as the path to a broken promise.
func (x *explorer) fail() {
	x.broken, x.path = true, nil
	for _, f := range x.stack {
		if f.next > 0 { // The last situation has no choice yet if the failure occurred at rest.
			x.path = append(x.path, f.next-1)
		}
	}
}

// rest brings a world in which nothing can happen any more to its end as a campaign does: everything open must have
// ended, and transfers must succeed again.
func (b *branch) rest() {
	w := b.w
	defer func() {
		if p := recover(); p != nil {
			w.Failure = nil
			w.Fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	for _, phase := range []func(){w.Heal, w.Finish, w.Probes, w.Expire, w.End} {
		w.Journal.Note(w.Now, world.KindPhase, plan.Nobody, 0, 0, 0)
		if phase(); w.Failure != nil {
			return
		}
	}
}

// shortenMost limits the search for a shorter path, in transitions.
const shortenMost = 400_000

// shorten looks for a shorter path to any broken promise, because the first path that a depth-first search finds is
// long.
func (x *explorer) shorten() {
	for most := shortenMost; len(x.path) > 1 && most > 0; {
		root, err := x.o.Scope.begin()
		if err != nil {
			return
		}
		again := &explorer{o: x.o, shape: x.shape, seen: map[uint64]int32{}, most: most}
		again.o.Depth, again.o.States = len(x.path)-1, StatesMax
		again.search(root)
		if !again.broken {
			return
		}
		most -= again.found.Transitions
		x.path = again.path
	}
}
