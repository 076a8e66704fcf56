package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Timers say when deadlines may pass in a scope.
type Timers uint8

const (
	// TimersIdle: only when nothing else can happen. Messages and transfers are quick.
	TimersIdle Timers = iota
	// TimersAny: at any time, whatever is still under way. Everything may be arbitrarily late.
	TimersAny
	// TimersUnits: likewise, and time may also pass by one unit to no deadline, so that
	// deadlines of different nodes come in every order that whole units allow.
	TimersUnits
)

// unit is what all spans of scopes are multiples of, so that situations recur.
const unit = 100 * effects.Millisecond

// unitsMax is more than any span has that a promise to an engine depends on.
const unitsMax = 8

// A Scope is a world so small that everything which can happen in it can be tried.
type Scope struct {
	Name  string
	About string // one line

	Senders, Receivers int
	Leased             bool
	Communicators      bool   // hardware is ended as a whole; with Leased
	Pull               bool   // all senders offer their chunks to be read
	Delay              bool   // all receivers keep such offers until their engines fetch
	Cache              bool   // all receivers keep what nobody expects any more while there is room
	Recall             bool   // what receivers have may be read back
	Staging            uint32 // pages that fetches read into; 0: 1
	SenderPages        uint32 // 0: enough for all chunks at once
	ReceiverPages      uint32 // 0: likewise
	ReservePPM         uint32 // of a sender's pages, that are never offered
	Jobs               []ScopeJob
	Timers             Timers
	// Patience is how long a put may take, in units of which a peer's answer may take two; 0: 6.
	Patience int

	// Faults is how many of the allowed faults may strike, each at any moment.
	Faults        int
	CrashSender   bool // between steps, and between any two effects of one
	CrashReceiver bool
	Drain         bool         // a receiver is told to leave, and leaves when it has drained
	Abort         bool         // of a reserve, a put or a get
	Cut           bool         // of a connection or a link, both ends being told
	Stall         bool         // a process stops and goes on later; its hardware does not
	Strikes       []plan.Fault // of those that campaigns draw on the fly, wherever they have an occasion

	// System is what runs, if not PD. Then these are what its engines want, and the processes that may die.
	System *System
	Items  []Item
	Crash  []string

	spoil func(*trial) // tests break a promise on purpose; nil otherwise
}

// A ScopeJob is one request: its chunks go from a sender to a receiver in batches.
type ScopeJob struct {
	Sender, Receiver int
	Chunks           []int // by number: the same number is the same key
	Batch            int   // chunks in a put; 0: all
	Early            bool  // its reader asks before it is told
	Recall           bool  // nobody sends it: its sender reads back what there is of it
}

// Scopes returns all scopes, by name.
func Scopes() []Scope {
	one := []ScopeJob{{Chunks: []int{1}}}
	two := []ScopeJob{{Chunks: []int{1, 2}, Batch: 1}}
	shared := []ScopeJob{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{1}}}
	apart := []ScopeJob{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{2}}}
	both := []ScopeJob{{Chunks: []int{1}}, {Chunks: []int{2}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // nobody is told
	var drawn []plan.Fault
	for _, f := range plan.Faults() {
		if !f.Scheduled() {
			drawn = append(drawn, f)
		}
	}
	all := []Scope{
		{Name: "push", About: "one chunk, nothing goes wrong", Jobs: one},
		{Name: "push-abort", About: "one chunk, one command is aborted, anywhere", Jobs: one, Faults: 1, Abort: true},
		{Name: "push-crash-receiver", About: "one chunk, the receiver dies once, anywhere", Jobs: one, Faults: 1, CrashReceiver: true},
		{Name: "push-crash-sender", About: "one chunk, the sender dies once, anywhere", Jobs: one, Faults: 1, CrashSender: true},
		{Name: "push-crashes", About: "one chunk, two deaths, of either node, anywhere", Jobs: one, Faults: 2, CrashSender: true, CrashReceiver: true},
		{Name: "push-cut", About: "one chunk, one connection or link breaks, anywhere", Jobs: one, Faults: 1, Cut: true},
		{Name: "push-late", About: "one chunk, everything may be late: any deadline may pass first", Jobs: one, Timers: TimersAny, Patience: 2},
		{Name: "push-late-again", About: "the same with time for a second attempt", Jobs: one, Timers: TimersAny, Patience: 4},
		{Name: "push-late-units", About: "one chunk, everything may be late, time passes in units", Jobs: one, Timers: TimersUnits, Patience: 2},
		{Name: "push-late-crash", About: "one chunk, everything may be late, either node dies once", Jobs: one, Timers: TimersAny, Patience: 2,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "push-lost", About: "one chunk, one request or reply is lost, anywhere", Jobs: one, Faults: 1, Strikes: lost},
		{Name: "push-stall", About: "one chunk, one process stops for any time, anywhere", Jobs: one, Faults: 1, Stall: true},
		{Name: "push-device", About: "one chunk, an import fails, a push is refused or stops half-way", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultImport, plan.FaultPushRefused, plan.FaultDMA}},
		{Name: "push-refused", About: "one chunk, a transport refuses an effect", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultRefused}},
		{Name: "push-again", About: "one chunk, an engine releases twice", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultAgain}},
		{Name: "push-any", About: "one chunk, any fault that campaigns draw on the fly, anywhere", Jobs: one, Faults: 1, Strikes: drawn},
		{Name: "push-any-two", About: "one chunk, any two of them", Jobs: one, Faults: 2, Strikes: drawn},
		{Name: "batch-any", About: "two chunks in one batch, any one of them", Jobs: []ScopeJob{{Chunks: []int{1, 2}}}, Faults: 1, Strikes: drawn},
		{Name: "leased-any", About: "two chunks in one batch on a leased plane, any one of them", Leased: true, Jobs: []ScopeJob{{Chunks: []int{1, 2}}},
			Faults: 1, Strikes: drawn},
		{Name: "early", About: "one chunk, its reader waits before it is sent", Jobs: []ScopeJob{{Chunks: []int{1}, Early: true}}},
		{Name: "early-crash", About: "one chunk, its reader waits before it is sent, either node dies once",
			Jobs: []ScopeJob{{Chunks: []int{1}, Early: true}}, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "batch", About: "two chunks in one batch", Jobs: []ScopeJob{{Chunks: []int{1, 2}}}},
		{Name: "batch-cut", About: "two chunks in one batch, one connection or link breaks", Jobs: []ScopeJob{{Chunks: []int{1, 2}}}, Faults: 1, Cut: true},
		{Name: "batches", About: "two chunks in two batches", Jobs: two},
		{Name: "batches-abort", About: "two chunks in two batches, one command is aborted", Jobs: two, Faults: 1, Abort: true},
		{Name: "batches-crash", About: "two chunks in two batches, either node dies once", Jobs: two, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "shared", About: "two senders push the same chunk", Senders: 2, Jobs: shared},
		{Name: "shared-lost", About: "two senders push the same chunk, one request or reply is lost", Senders: 2, Jobs: shared, Faults: 1, Strikes: lost},
		{Name: "full", About: "two senders, room for one chunk: one waits", Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "full-lost", About: "two senders, room for one chunk, one request or reply is lost", Senders: 2, ReceiverPages: 1, Jobs: apart, Faults: 1, Strikes: lost},
		{Name: "waiter", About: "one sender with one page and two requests: the second one waits for it", SenderPages: 1,
			Jobs: []ScopeJob{{Chunks: []int{1}}, {Chunks: []int{2}}}},
		{Name: "waiter-abort", About: "the same, one command is aborted", SenderPages: 1,
			Jobs: []ScopeJob{{Chunks: []int{1}}, {Chunks: []int{2}}}, Faults: 1, Abort: true},
		{Name: "waiters", About: "one sender with one page and three requests: two wait for it", SenderPages: 1,
			Jobs: []ScopeJob{{Chunks: []int{1}}, {Chunks: []int{2}}, {Chunks: []int{3}}}},
		{Name: "two-crash", About: "one sender with two requests, either node dies once", Jobs: both, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-two-crash", About: "one sender with two requests on a leased plane, the receiver dies once", Leased: true, Jobs: both, Faults: 1, CrashReceiver: true},
		{Name: "leased-batch-stall", About: "two chunks in one batch on a leased plane, one process stops for any time", Leased: true,
			Jobs: []ScopeJob{{Chunks: []int{1, 2}}}, Faults: 1, Stall: true},
		{Name: "leased", About: "one chunk on a leased plane", Leased: true, Jobs: one},
		{Name: "leased-abort", About: "one chunk on a leased plane, one command is aborted", Leased: true, Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-crash", About: "one chunk on a leased plane, either node dies once", Leased: true, Jobs: one, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-cut", About: "one chunk on a leased plane, one connection or link breaks", Leased: true, Jobs: one, Faults: 1, Cut: true},
		{Name: "leased-device", About: "two chunks in one batch on a leased plane, an import fails or a transfer stops half-way", Leased: true,
			Jobs: []ScopeJob{{Chunks: []int{1, 2}}}, Faults: 1, Strikes: []plan.Fault{plan.FaultImport, plan.FaultDMA}},
		{Name: "leased-lost", About: "one chunk on a leased plane, one request or reply is lost", Leased: true, Jobs: one, Faults: 1, Strikes: lost},
		{Name: "leased-full", About: "two senders on a leased plane, room for one chunk", Leased: true, Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "leased-late", About: "one chunk on a leased plane, everything may be late", Leased: true, Jobs: one, Timers: TimersAny, Patience: 2},
		{Name: "leased-late-units", About: "one chunk on a leased plane, everything may be late, time passes in units", Leased: true, Jobs: one,
			Timers: TimersUnits, Patience: 2},
		{Name: "leased-late-batch", About: "two chunks in one batch on a leased plane, everything may be late", Leased: true,
			Jobs: []ScopeJob{{Chunks: []int{1, 2}}}, Timers: TimersAny, Patience: 2},
		{Name: "leased-stall", About: "one chunk on a leased plane, one process stops for any time", Leased: true, Jobs: one, Faults: 1, Stall: true},
	}
	all = append(all, pullScopes()...)
	all = append(all, delayedScopes()...)
	all = append(all, cacheScopes()...)
	all = append(all, communicatorScopes()...)
	all = append(all, recallScopes()...)
	slices.SortFunc(all, func(a, b Scope) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ScopeNamed finds a scope.
func ScopeNamed(name string) (Scope, error) {
	var names []string
	for _, s := range Scopes() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scope{}, fmt.Errorf("sim: scope %q is unknown: use one of %s", name, strings.Join(names, ", "))
}

// plan is the scope as a plan; bounds are as small as the scope allows.
func (s *Scope) plan() *plan.Plan {
	const unit = time.Duration(unit)
	p := plan.New()
	p.Seed, p.Profile = draw.StillSeed, s.Name
	p.Topology.Senders, p.Topology.Receivers = max(s.Senders, 1), max(s.Receivers, 1)
	p.Topology.Leased, p.Topology.Communicators, p.Topology.Recall = s.Leased, s.Communicators, s.Recall
	for i := range p.Topology.Senders {
		if s.Pull {
			p.Topology.Pull = append(p.Topology.Pull, plan.Node(i))
		}
	}
	for i := range p.Topology.Receivers {
		if s.Delay {
			p.Topology.Delay = append(p.Topology.Delay, p.Receiver(i))
		}
		if s.Cache {
			p.Topology.Cache = append(p.Topology.Cache, p.Receiver(i))
		}
	}
	p.Timeouts = plan.Timeouts{Put: 6 * unit, Reserve: 3 * unit, Alloc: unit, Reply: 2 * unit, Lease: 4 * unit,
		LeaseGuard: unit,
		Residual:   unit, ClaimTTL: 6 * unit, BackoffMin: unit, BackoffMax: 2 * unit, GetWaitMax: 3 * unit,
		PullTTL: 4 * unit, Read: 3 * unit, Fetch: 3 * unit, Lead: unit / 2, Loan: 4 * unit}
	if s.Patience > 0 {
		p.Timeouts.Put = time.Duration(s.Patience) * unit
	}
	p.Bounds = plan.Bounds{Puts: 4, Reserves: 4, Gets: 4, Waiters: 4, Requests: 4, Grants: 4, Peers: 3, Overtakes: 2,
		PeerSharePct: 100,
		Staging:      max(s.Staging, 1), Offers: 4, Places: 8, Fetches: 4}
	p.Bounds.ReservePPM = s.ReservePPM
	chunks := uint32(0)
	for i, j := range s.Jobs {
		job := plan.Job{Request: uint32(i), From: plan.Node(j.Sender), To: p.Receiver(j.Receiver),
			Batch: len(j.Chunks), Early: j.Early, Recall: j.Recall}
		for _, chunk := range j.Chunks {
			job.Keys = append(job.Keys, uint32(chunk))
			chunks++
		}
		if j.Batch > 0 {
			job.Batch = j.Batch
		}
		p.Jobs = append(p.Jobs, job)
	}
	p.Topology.SenderPages, p.Topology.ReceiverPages = max(chunks, 1), max(chunks, 1)
	if s.SenderPages > 0 {
		p.Topology.SenderPages = s.SenderPages
	}
	if s.ReceiverPages > 0 {
		p.Topology.ReceiverPages = s.ReceiverPages
	}
	s.items(&p)
	return &p
}

// begin makes the scope's world, with its requests about to start.
func (s *Scope) begin() (*branch, error) {
	p := s.plan()
	if err := s.System.Check(p); err != nil {
		return nil, fmt.Errorf("sim: scope %s: %w", s.Name, err)
	}
	w, err := newTrial(Options{System: s.System}, p)
	if err != nil {
		return nil, err
	}
	if s.spoil != nil {
		s.spoil(w)
	}
	b := &branch{w: w, left: s.Faults, frozen: plan.Nobody}
	b.settle()
	return b, nil
}
