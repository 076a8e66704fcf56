package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Target is who is recalled from: it says what there is, and lets it be read.
//
// Three hold the same pages for the same time. A pin says that the store does not give the chunk up, so that the next
// one who asks finds it; a read grant says that nobody writes the page; the lease says until when. In one step all
// three begin, before the answer leaves, and in one step all three end.
type Target struct {
	cfg    Config `snap:"share"`
	loans  table.Slab[loan]
	byName table.Index // by who asked and its operation
	leases table.Share // of loans, by class
	pages  table.Share // of the pages under them, by class
	losses kernel.Losses

	ask     protocol.CacheQueryRequest  `snap:"scratch"`
	reply   protocol.CacheQueryResponse `snap:"scratch"`
	entries []store.Entry               `snap:"scratch"`
	found   []effects.Page              `snap:"scratch"`
}

// Emptied returns a Target that has lent nothing, in the memory of f, which is not used any more.
func (f *Target) Emptied(cfg Config, classes int) Target {
	return Target{
		cfg: cfg, loans: f.loans.Emptied(int(cfg.LeasesMax)), byName: f.byName.Emptied(),
		leases: f.leases.Emptied(int(cfg.LeasesMax), classes), pages: f.pages.Emptied(int(cfg.PagesMax), classes),
		losses: f.losses.Emptied(classes),
		ask:    f.ask, reply: f.reply, entries: f.entries, found: f.found,
	}
}

// A loan is a prefix that one peer may read.
type loan struct {
	lease     lease.Owner
	peer      effects.Incarnation
	class     int
	operation uint64
	hash      uint64 // of both, as in byName
	what      uint64 // which keys were asked for
	until     effects.Time
	born      kernel.Birth  // as losses
	entries   []store.Entry // pinned
	pages     []effects.Page
}

// prefix looks up the longest prefix of keys that can be read, no longer than most. What is being written, or is wanted
// back by its engine, ends it.
func (f *Target) prefix(e *flow.Env, keys [][]byte, most int) {
	f.entries, f.found = f.entries[:0], f.found[:0]
	for _, key := range keys {
		h := e.Store.Find(e.Store.Hash(key), key)
		page, ready := e.Store.Ready(h)
		if !ready || e.Store.Leaving(h) || e.Pool.Written(page) {
			return
		}
		if len(f.found) >= most {
			e.Out.Mark(MarkPrefixCut)
			return
		}
		f.entries, f.found = append(f.entries, h), append(f.found, page)
	}
}

// lend pins what prefix found and leases it to a peer.
func (f *Target) lend(e *flow.Env, class int, to lease.Reader, operation, what uint64) *loan {
	h, x := f.loans.Add()
	*x = loan{
		peer: to.Who, class: class, operation: operation, what: what, hash: f.name(e, to.Who, operation),
		until: e.Now.Add(f.cfg.TTL), born: f.losses.Of(class),
		entries: append(x.entries[:0], f.entries...), pages: append(x.pages[:0], f.found...),
	}
	f.byName.Add(x.hash, h)
	f.leases.Take(class)
	f.pages.Add(class, len(x.pages))
	for _, entry := range x.entries {
		e.Store.Pin(entry, 0, &e.Env) // For no request: nobody's claim ends.
	}
	x.lease.Grant(&e.Env, x.pages, to, f.cfg.TTL, targetRef(h))
	return x
}

// over unpins what a lease was for: nobody reads under it any more.
func (f *Target) over(e *flow.Env, h table.Handle) {
	x := f.loans.Get(h)
	for _, entry := range x.entries {
		e.Store.Unpin(entry, &e.Env)
	}
	f.leases.Give(x.class)
	f.pages.Add(x.class, -len(x.pages))
	f.byName.Remove(x.hash, h)
	x.entries, x.pages = table.Shed(x.entries), table.Shed(x.pages)
	f.loans.Remove(h)
}

// Lose condemns what is leased to a peer that is gone: its link was the way on which it reads. For planes that can take
// a lease back alone; elsewhere it may read on, until its time is over.
func (f *Target) Lose(class int) { f.losses.Add(class) }

// lost says that a lease is condemned: nobody is told of it again.
func (f *Target) lost(x *loan) bool { return f.losses.Over(x.class, x.born) }

// LostAt takes the lease at a slot back if it is condemned, for sweeps.
func (f *Target) LostAt(e *flow.Env, slot int32) kernel.Where {
	if x := f.loans.Get(f.loans.At(slot)); x != nil && f.lost(x) && x.lease.Stands() {
		e.Out.Mark(MarkLeaseLost)
		e.Work.Spend(1)
		x.lease.Withdraw(&e.Env)
	}
	return kernel.At(slot < f.loans.Slots())
}

// name is the hash of who asks and of its operation.
func (f *Target) name(e *flow.Env, who effects.Incarnation, operation uint64) uint64 {
	return e.Store.Hash(who[:]) ^ operation*0x9E3779B97F4A7C15
}

// find is the loan of an operation, or zero.
func (f *Target) find(e *flow.Env, who effects.Incarnation, operation uint64) table.Handle {
	for p := f.byName.Seek(f.name(e, who, operation)); p.Found(); p = f.byName.Next(p) {
		if x := f.loans.Get(p.Handle()); x.peer == who && x.operation == operation {
			return p.Handle()
		}
	}
	return 0
}

// done takes a reader's word that it reads no more under a grant.
func (f *Target) done(e *flow.Env, who, us effects.Incarnation, grant uint64) {
	ref := e.Pools.Owner(effects.GrantID(grant))
	if ref.Owner != kernel.OwnerRecallTarget {
		return
	}
	x := f.loans.Get(ref.Subject)
	if x.lease.Stands() && x.lease.SpokenOfBy(who, us, grant) && x.lease.EndByWord(&e.Env, e.Cfg.Leased) {
		e.Out.Mark(MarkLeaseByWord)
		f.over(e, ref.Subject)
	}
}

// Due takes the end of a lease's time.
func (f *Target) Due(e *flow.Env, ref kernel.Ref) {
	if f.loans.Get(ref.Subject).lease.EndByTime(&e.Env, e.Cfg.Leased) {
		e.Out.Mark(MarkLeaseByTime)
		f.over(e, ref.Subject)
	}
}

// Step takes a question, and the proof that nobody reads under a lease any more.
func (f *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Received:
		f.onQuery(e, x)
	case *effects.Revoked:
		if f.loans.Get(ref.Subject).lease.Revoked(&e.Env) {
			e.Out.Mark(MarkLeaseRevoked)
			f.over(e, ref.Subject)
		}
	default:
		kernel.Foreign("who is recalled from")
	}
}

// Signal is never given.
func (f *Target) Signal(*flow.Env, kernel.Ref, flow.Signal) {
	panic("BUG: recall.Target is told of what it has nothing to do with")
}

// Busy adds to each class what is lent to it: while there is any the class stays its peer's.
func (f *Target) Busy(into []uint32) {
	for class := range into {
		into[class] += uint32(f.leases.Of(class))
	}
}

// Len is the number of leases that are out.
func (f *Target) Len() int { return f.loans.Len() }

// Abort has nothing to end: no command of ours is answered here.
func (f *Target) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left counts what a drain waits for: each lease ends in time.
func (f *Target) Left(*flow.Env) int { return f.Len() }

// State is where the lease of a Ref stands.
func (f *Target) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	switch x := f.loans.Get(ref.Subject); {
	case x == nil:
		return 0
	case x.lease.Stands():
		return 1
	}
	return 2
}

// TargetStates is how many there are.
const TargetStates = 3

// TargetStateNames are their names.
func TargetStateNames() []string { return []string{"prefix over", "prefix leased", "prefix revoked"} }

var _ flow.Flow = (*Target)(nil)
