package explore

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Explore tries every order in which things can happen in a scope: it goes depth first,
// clones the situation for each choice, and goes on only from situations that it has not
// met. In each the same oracles watch as in a campaign, and where nothing can happen any
// more, everything must have ended, nothing be left, and a further transfer succeed.
//
// Situations are told apart by 64 bits: among ten million the chance that any two
// different ones were taken for the same is one in three hundred thousand.
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

type explorer struct {
	o     Options
	shape *shape
	seen  map[uint64]int32 // the depth at which a situation was met
	stack []frame
	found Exploration
	cut   bool // a path reached the depth

	most   int               // transitions; 0 is no bound
	onEnd  func(hash uint64) // tests; nil otherwise
	broken bool
	path   Path // to the first broken promise
}

// frame is one situation on the path under way.
type frame struct {
	b       *branch
	choices []choice
	next    int
}

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
		if f.next < len(f.choices) { // The last choice may have the situation itself.
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

// skip passes over the crashes further on in a step that has no such effect.
func (f *frame) skip(c choice) {
	for f.next < len(f.choices) && f.choices[f.next].move == moveCrashIn && f.choices[f.next].seq == c.seq &&
		f.choices[f.next].node == c.node {
		f.next++
	}
}

// try makes a choice. A machine that panics broke an invariant: that is a finding.
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

// enter goes on from b unless it was met before.
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

func (x *explorer) fail() {
	x.broken, x.path = true, nil
	for _, f := range x.stack {
		if f.next > 0 { // The last one, if it failed at rest, has made no choice.
			x.path = append(x.path, f.next-1)
		}
	}
}

// rest lets a world in which nothing can happen any more come to its end as a campaign
// does: whatever is open must have ended, and transfers succeed again.
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

// shortenMost bounds the search for a shorter way to what was found, in transitions.
const shortenMost = 400_000

// shorten looks for a shorter path to any broken promise: the first one found depth
// first goes a long way round.
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
