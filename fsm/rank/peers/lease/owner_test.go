package lease

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// A lease is over by a word or by time only where that proves that nobody reads. Everywhere else it is revoked, and
// is over with the proof, not before.
func TestLeaseEnds(t *testing.T) {
	const word, time = "word", "time"
	for _, c := range []struct {
		name          string
		leased, keeps bool
		again         int // messages beyond the first that spoke of it
		by            string
		over          bool
	}{
		{"fenced planes prove each end", false, true, 0, word, false},
		{"also of who would keep to the time", false, true, 0, time, false},
		{"the word of who keeps to leases", true, true, 0, word, true},
		{"however often it was told", true, true, 2, word, true},
		{"and its time", true, true, 0, time, true},
		{"the word of a plain reader that was told once", true, false, 0, word, true},
		{"of one told twice: it may read by the first message", true, false, 1, word, false},
		{"a plain reader knows of no time", true, false, 0, time, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out effects.Effects
			timers := kernel.NewTimers(2)
			pools := memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: 1, ClassShare: 1})
			v := &env.Env{Now: 1, Out: &out, Pools: &pools, Pool: pools.Pool(0), Timers: &timers}
			pages := v.Pool.TakePages(1, nil)
			var x Owner
			x.GrantPages(v, pages, Reader{KeepsLeases: c.keeps}, 10, kernel.Ref{Owner: kernel.OwnerPullSource})
			for range c.again {
				x.CountMessage()
			}
			v.Pool.DropRef(pages[0])
			end := x.EndByDone
			if c.by == time {
				v.Now = 11
				timers.Pop(v.Now)
				end = x.EndByTime
			}
			if over := end(v, c.leased); over != c.over || x.MayBeRead() == c.over || x.IsInForce() {
				t.Fatalf("over is %v, and it is out: %v, stands: %v", over, x.MayBeRead(), x.IsInForce())
			}
			if free := v.Pool.FreePages() == 1; free != c.over {
				t.Fatalf("its page is free: %v", free)
			}
			if x.EndByDone(v, c.leased) {
				t.Fatal("it is over twice")
			}
			if over := x.OnRevoked(v); over == c.over || x.MayBeRead() || v.Pool.FreePages() != 1 || timers.Len() != 0 {
				t.Fatalf("over by the proof: %v; out: %v, %d deadlines", over, x.MayBeRead(), timers.Len())
			}
		})
	}
}
