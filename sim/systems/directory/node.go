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
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A node is a worker of kvferry: a store with pages, and the registrar that reports the chunks of the store. Commands
// stand for what an engine would do.
type node struct {
	registrar.Standalone
	store       store.Store
	pools       memory.Pools
	limits      registrar.Config `snap:"share"`
	leaveTicket effects.Ticket
	restFact    effects.Observe `snap:"share"` // see factAtRest
	// mayBeRefused says that a directory may refuse the worker until the end of the run.
	mayBeRefused bool `snap:"share"`
}

// pageCount is the number of pages, which is enough for all chunks.
const pageCount = promptCount*chunksPerPrompt + longPromptChunks

func newNode(w workerID, b custom.Boot, c registrar.Config, directories []string) (*node, error) {
	c.Seed = b.Seed
	c.Worker = registrar.Worker{
		Instance: w.instance, Rank: w.rank, IP: w.instance, Port: w.listener().Port, URL: string(w.peerURL(b)),
		Location:    string(cpuLocation),
		Incarnation: effects.Incarnation(w.incarnationOf(b)),
	}
	for _, name := range directories {
		c.Directories = append(c.Directories, registrar.Directory{
			RequestAddr: b.Addr(name, effects.ChannelDirectory), FeedAddr: b.Addr(name, effects.ChannelFeed), Plain: w.lacksExtensions,
		})
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	n := &node{
		Standalone: new(registrar.Standalone).Recycle(c), limits: c,
		restFact: effects.Observe{Fact: factAtRest, ID: uint64(b.Plan.FaultsEnd)},
		store: store.New(store.Config{
			Settings: store.Settings{ClaimsMax: 1}, Seed: b.Seed, Entries: pageCount, Pages: pageCount, Classes: 1,
			Journal: journalLength(b.Plan),
		}),
		pools: memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: pageCount, ClassShare: pageCount}),
	}
	n.mayBeRefused = isMixed(b.Plan, w.instance)
	if hasReliableLog(b.Plan) {
		n.restFact.Count = keepSilentWorkers
	}
	return n, nil
}

// Step consumes one event.
func (n *node) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	v := n.Env(now, out)
	v.Pools, v.Pool = &n.pools, n.pools.Pool(0)
	if x, ok := ev.(*effects.Command); ok {
		n.handleCommand(&v, x)
	}
	n.Standalone.Step(&v, &n.store, ev)
	for _, a := range n.Lookups.Results() {
		out.Deliver(effects.Deliver{Ticket: effects.Ticket(a.Ref.Attempt), Code: a.Code, Hits: uint32(len(a.Holders))})
	}
	n.Lookups.ClearResults()
	if n.leaveTicket != 0 && n.Registrar.CountActive() == 0 {
		out.Deliver(effects.Deliver{Ticket: n.leaveTicket, Code: effects.OK})
		n.leaveTicket = 0
	}
}

func (n *node) handleCommand(v *env.Env, e *effects.Command) {
	switch x := e.Body.(type) {
	case *admitBody:
		for _, c := range x.chunks {
			n.admitChunk(v, c)
		}
	case *evictBody:
		for _, c := range x.chunks {
			n.evictChunk(v, c)
		}
	case *lookupBody:
		n.startLookup(v, e.Ticket, x)
		return
	case *finalLookupBody:
		v.Out.Observe(n.restFact)
		n.startLookup(v, e.Ticket, &x.lookupBody)
		return
	case *leaveBody:
		if n.leaveTicket == 0 {
			n.leaveTicket = e.Ticket
			n.Registrar.Leave(v, &n.store)
			return
		}
	}
	v.Out.Deliver(effects.Deliver{Ticket: e.Ticket})
}

func (n *node) startLookup(v *env.Env, t effects.Ticket, x *lookupBody) {
	var keys [][]byte
	for _, c := range x.chunks {
		keys = append(keys, chunkKey(c))
	}
	n.Lookups.StartLookup(v, kernel.Ref{Attempt: uint64(t)}, keys)
}

// admitChunk adds a chunk to the store, unless the store has it.
func (n *node) admitChunk(v *env.Env, chunk uint64) {
	key := chunkKey(chunk)
	hash := n.store.HashKey(key)
	if n.store.Find(hash, key) == 0 {
		page := v.Pool.TakePages(1, nil)[0]
		n.store.KeepEnginePage(v, hash, key, page)
		v.Pool.DropRef(page)
	}
}

// evictChunk removes a chunk from the store, if the store has it.
func (n *node) evictChunk(v *env.Env, chunk uint64) {
	key := chunkKey(chunk)
	if h := n.store.Find(n.store.HashKey(key), key); h != 0 {
		n.store.WithdrawPage(h, v)
	}
}

// chunkKey returns the key of a chunk.
func chunkKey(chunk uint64) []byte {
	return append(strconv.AppendUint([]byte("m@1@0@"), chunk, 16), "@bfloat16"...)
}

// VisitTables visits the tables that are empty at rest.
func (n *node) VisitTables(visit func(name string, n, most int)) {
	syncs := 0
	for i := range n.limits.Directories {
		if n.Registrar.Status(&n.store, i).Syncing {
			syncs++
		}
	}
	if n.restFact.Count != keepSilentWorkers && !n.mayBeRefused { // Otherwise a directory may request syncs until the end of the run.
		visit("syncs", syncs, len(n.limits.Directories))
	}
	visit("lookups", n.Lookups.CountUnfinished(), n.limits.LookupsMax)
}

// VisitKeptTables visits the tables that may have entries at rest.
func (n *node) VisitKeptTables(visit func(name string, n, limits int)) {
	need := n.limits.RegistrarNeed().Add(n.limits.LookupNeed())
	limits := map[string]int{
		"lookups": n.limits.LookupsMax, "answers kept": n.limits.CacheSize, "outstanding": need.MaxOutstanding(),
		"connections": n.limits.MaxConns(), "deadlines": need.Deadlines,
	}
	n.Standalone.VisitTables(func(name string, k int, _ table.Rest) { visit(name, k, limits[name]) })
}

// workerID identifies a worker.
type workerID struct {
	instance string
	rank     uint32
	// lacksExtensions says that the worker speaks LMCache's protocol without extensions to the directories, and states no
	// incarnation. Such a worker may still be a kvferry node.
	lacksExtensions bool
}

// incarnationOf returns the incarnation that a process of the worker states.
func (w workerID) incarnationOf(b custom.Boot) protocol.UUID {
	if w.lacksExtensions {
		return protocol.UUID{}
	}
	return protocol.UUID{byte(b.Seed), byte(b.Seed >> 8), byte(b.Seed >> 16), byte(b.Seed >> 24), byte(b.Seed >> 32), 1}
}

func (w workerID) wireWorker() protocol.Worker {
	return protocol.Worker{InstanceID: []byte(w.instance), WorkerID: w.rank}
}

// peerURL returns the address for peers. Each incarnation has another address.
func (w workerID) peerURL(b custom.Boot) []byte {
	u := strconv.AppendUint([]byte(w.instance+"-"), uint64(w.rank), 10)
	return strconv.AppendUint(append(u, ':'), 7000+b.Seed%100, 10)
}

func (w workerID) listener() protocol.Listener {
	return protocol.Listener{IP: []byte(w.instance), Port: uint16(9000 + w.rank)}
}
