package registrar

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A rig is a worker: what it has, and who tells of it.
type rig struct {
	Standalone
	store store.Store
	pools memory.Pools
	now   effects.Time
	out   effects.Effects
	has   map[int]table.Handle
}

const rigPages = 64

func newRig(t failer, journal int, change func(c *Config)) *rig {
	c := Default()
	c.Worker = Worker{
		Instance: "a", IP: "10.0.0.1", Port: 9000, URL: "10.0.0.1:7000", Location: "cpu", Incarnation: effects.Incarnation{1},
	}
	c.Directories = []Directory{{RequestAddr: effects.Addr{Host: "d0", Port: 1}, FeedAddr: effects.Addr{Host: "d0", Port: 2}}}
	c.Seed, c.SyncBatchSlots = 7, 2
	if change != nil {
		change(&c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	r := &rig{Standalone: new(Standalone).Recycle(c), has: map[int]table.Handle{}, now: 1}
	r.store = store.New(store.Config{
		Settings: store.Settings{ClaimsMax: 1}, Entries: rigPages, Pages: rigPages, Classes: 1, Journal: journal,
	})
	r.pools = memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: rigPages, ClassShare: rigPages})
	return r
}

func (r *rig) env() env.Env {
	v := r.Env(r.now, &r.out)
	v.Pools, v.Pool = &r.pools, r.pools.Pool(0)
	return v
}

func keyOf(n int) []byte { return fmt.Appendf(nil, "m@1@0@%x@bfloat16", 0xabc00+n) }

func hashOf(n int) uint64 { return uint64(0xabc00 + n) }

// admit has a chunk come, and evict one go; whoever tells of it hears at the next step.
func (r *rig) admit(n int) {
	if _, has := r.has[n]; has {
		return
	}
	v, key := r.env(), keyOf(n)
	page := v.Pool.TakePages(1, nil)[0]
	h, _ := r.store.KeepEnginePage(&v, r.store.HashKey(key), key, page)
	v.Pool.DropRef(page)
	r.has[n] = h
}

func (r *rig) evict(n int) {
	if h, has := r.has[n]; has {
		v := r.env()
		r.store.WithdrawPage(h, &v)
		delete(r.has, n)
	}
}

func (r *rig) step(ev effects.Event) {
	r.out.Reset()
	v := r.env()
	r.Step(&v, &r.store, ev)
}

// A failer is a test, or one that rapid makes.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
