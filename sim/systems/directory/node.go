package directory

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/own"
)

// A node is a worker of kvferry: a store with pages, and the registrar that reports the chunks of the store. Commands
// stand for what an engine would do.
type node struct {
	registrar.Standalone
	store   store.Store
	pools   memory.Pools
	limits  registrar.Config `snap:"share"`
	leaves  effects.Ticket
	settled effects.Observe `snap:"share"` // see factSettled
}

// pages is the number of pages, which is enough for all chunks.
const pages = prompts*ofPrompt + ofLong

func newNode(w who, b own.Boot, c registrar.Config, tells []string) (*node, error) {
	c.Seed = b.Seed
	c.Worker = registrar.Worker{
		Instance: w.instance, Rank: w.rank, IP: w.instance, Port: w.listener().Port, URL: string(w.url(b)),
		Location:    string(cpu),
		Incarnation: effects.Incarnation(w.incarnation(b)),
	}
	for _, name := range tells {
		c.Directories = append(c.Directories, registrar.Directory{
			RequestAddr: b.Addr(name, effects.ChannelDirectory), FeedAddr: b.Addr(name, effects.ChannelFeed), Plain: w.plain,
		})
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	n := &node{
		Standalone: new(registrar.Standalone).Recycle(c), limits: c,
		settled: effects.Observe{Fact: factSettled, ID: uint64(b.Plan.FaultsEnd)},
		store: store.New(store.Config{
			Settings: store.Settings{ClaimsMax: 1}, Seed: b.Seed, Entries: pages, Pages: pages, Classes: 1,
			Journal: journal(b.Plan),
		}),
		pools: memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: pages, ClassShare: pages}),
	}
	if steady(b.Plan) {
		n.settled.Count = firstStays
	}
	return n, nil
}

// Step consumes one event.
func (n *node) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	v := n.Env(now, out)
	v.Pools, v.Pool = &n.pools, n.pools.Pool(0)
	if x, ok := ev.(*effects.Command); ok {
		n.command(&v, x)
	}
	n.Standalone.Step(&v, &n.store, ev)
	for _, a := range n.Lookups.Results() {
		out.Deliver(effects.Deliver{Ticket: effects.Ticket(a.Ref.Attempt), Code: a.Code})
	}
	n.Lookups.ClearResults()
	if n.leaves != 0 && n.Registrar.CountActive() == 0 {
		out.Deliver(effects.Deliver{Ticket: n.leaves, Code: effects.OK})
		n.leaves = 0
	}
}

func (n *node) command(v *env.Env, e *effects.Command) {
	switch x := e.Body.(type) {
	case *admit:
		for _, c := range x.chunks {
			n.admit(v, c)
		}
	case *evict:
		for _, c := range x.chunks {
			n.evict(v, c)
		}
	case *lookup:
		n.looks(v, e.Ticket, x)
		return
	case *settled:
		v.Out.Observe(n.settled)
		n.looks(v, e.Ticket, &x.lookup)
		return
	case *leave:
		if n.leaves == 0 {
			n.leaves = e.Ticket
			n.Registrar.Leave(v, &n.store)
			return
		}
	}
	v.Out.Deliver(effects.Deliver{Ticket: e.Ticket})
}

func (n *node) looks(v *env.Env, t effects.Ticket, x *lookup) {
	var keys [][]byte
	for _, c := range x.chunks {
		keys = append(keys, keyOf(c))
	}
	n.Lookups.StartLookup(v, kernel.Ref{Attempt: uint64(t)}, keys)
}

// admit adds a chunk to the store, unless the store has it.
func (n *node) admit(v *env.Env, chunk uint64) {
	key := keyOf(chunk)
	hash := n.store.HashKey(key)
	if n.store.Find(hash, key) == 0 {
		page := v.Pool.TakePages(1, nil)[0]
		n.store.KeepEnginePage(v, hash, key, page)
		v.Pool.DropRef(page)
	}
}

// evict removes a chunk from the store, if the store has it.
func (n *node) evict(v *env.Env, chunk uint64) {
	key := keyOf(chunk)
	if h := n.store.Find(n.store.HashKey(key), key); h != 0 {
		n.store.WithdrawPage(h, v)
	}
}

// keyOf returns the key of a chunk.
func keyOf(chunk uint64) []byte {
	return append(strconv.AppendUint([]byte("m@1@0@"), chunk, 16), "@bfloat16"...)
}

// Tables visits the tables that are empty at rest.
func (n *node) Tables(visit func(name string, n, most int)) {
	syncs := 0
	for i := range n.limits.Directories {
		if n.Registrar.Status(&n.store, i).Syncing {
			syncs++
		}
	}
	if n.settled.Count != firstStays { // Otherwise a directory may request syncs until the end of the run.
		visit("syncs", syncs, len(n.limits.Directories))
	}
	visit("lookups", n.Lookups.CountUnfinished(), n.limits.LookupsMax)
}

// Remembers visits the tables that may have entries at rest.
func (n *node) Remembers(visit func(name string, n, most int)) {
	need := n.limits.RegistrarNeed().Add(n.limits.LookupNeed())
	most := map[string]int{
		"lookups": n.limits.LookupsMax, "answers kept": n.limits.CacheSize, "outstanding": need.MaxOutstanding(),
		"connections": n.limits.MaxConns(), "deadlines": need.Deadlines,
	}
	n.Standalone.VisitTables(func(name string, k int, _ table.Rest) { visit(name, k, most[name]) })
}

// who identifies a worker.
type who struct {
	instance string
	rank     uint32
	plain    bool // the worker speaks LMCache's protocol without extensions, and states no incarnation
}

// incarnation returns the incarnation that a process of the worker states.
func (w who) incarnation(b own.Boot) protocol.UUID {
	if w.plain {
		return protocol.UUID{}
	}
	return protocol.UUID{byte(b.Seed), byte(b.Seed >> 8), byte(b.Seed >> 16), byte(b.Seed >> 24), byte(b.Seed >> 32), 1}
}

func (w who) worker() protocol.Worker {
	return protocol.Worker{InstanceID: []byte(w.instance), WorkerID: w.rank}
}

// url returns the address for peers. Each incarnation has another address.
func (w who) url(b own.Boot) []byte {
	u := strconv.AppendUint([]byte(w.instance+"-"), uint64(w.rank), 10)
	return strconv.AppendUint(append(u, ':'), 7000+b.Seed%100, 10)
}

func (w who) listener() protocol.Listener {
	return protocol.Listener{IP: []byte(w.instance), Port: uint16(9000 + w.rank)}
}
