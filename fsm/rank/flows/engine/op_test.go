package engine

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// panics says whether f ends in one.
func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return
}

// A command has one outcome and its memory back once, not before that; it holds its pages until then, and no longer.
func TestOp(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps func(v *env.Env, o *Op)
		out   []effects.Deliver // what is delivered
		backs int               // Returns
		wrong func(v *env.Env, o *Op)
	}{
		{"memory with the outcome", func(v *env.Env, o *Op) { o.Deliver(v, effects.Deliver{}) },
			[]effects.Deliver{{}}, 0, func(v *env.Env, o *Op) { o.Deliver(v, effects.Deliver{}) }},
		{"after it", func(v *env.Env, o *Op) { o.Deliver(v, effects.Deliver{Held: true}); o.ReturnPages(v) },
			[]effects.Deliver{{Held: true}}, 1, func(v *env.Env, o *Op) { o.ReturnPages(v) }},
		{"with it, and not after", func(v *env.Env, o *Op) { o.Deliver(v, effects.Deliver{}) },
			[]effects.Deliver{{}}, 0, func(v *env.Env, o *Op) { o.ReturnPages(v) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out effects.Effects
			timers := kernel.NewTimers(1)
			pools := memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: 1, ClassShare: 1})
			v := &env.Env{Now: 1, Out: &out, Pools: &pools, Pool: pools.Pool(0), Timers: &timers}
			pages := v.Pool.TakePages(1, nil)
			var o Op
			o.BeginCommand(v, 7, nil, pages, 10)
			v.Timers.Set(&o.Timer, o.Deadline, kernel.Ref{Owner: kernel.OwnerPushSource})
			if !v.Pool.HasHold(pages[0]) || !panics(o.MustBeFinished) || !panics(func() { o.ReturnPages(v) }) {
				t.Fatal("a command that has begun holds nothing, or may end, or have its memory back")
			}
			c.steps(v, &o)
			o.MustBeFinished()
			if v.Pool.HasHold(pages[0]) || timers.Len() != 0 || !o.IsDelivered() || o.IsHeld() {
				t.Fatal("it still holds its pages, or waits for its deadline")
			}
			var got []effects.Deliver
			backs := 0
			for i := range out.Len() {
				switch e := out.At(i).(type) {
				case *effects.Deliver:
					got = append(got, effects.Deliver{Held: e.Held})
				case *effects.Return:
					backs++
				}
			}
			if len(got) != len(c.out) || got[0].Held != c.out[0].Held || backs != c.backs {
				t.Fatalf("delivered %+v, and its memory came back %d times", got, backs)
			}
			if !panics(func() { c.wrong(v, &o) }) {
				t.Fatal("it goes on after its end")
			}
		})
	}
}
