package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// delayed returns the scopes of receivers that defer offers until the engine fetches. A fetch reads into a single
// staging page unless the scope specifies more.
func delayed() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	two := []explore.Job{{Chunks: []int{1, 2}}}
	early := []explore.Job{{Chunks: []int{1}, Early: true}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost, plan.FaultDoneLost}
	device := []plan.Fault{plan.FaultImport, plan.FaultPushRefused, plan.FaultDMA, plan.FaultHalfPage}
	all := []explore.Scope{
		{Name: "delayed", About: "one chunk is offered, deferred and fetched, no faults", Jobs: one},
		{Name: "delayed-batch", About: "two chunks are offered, deferred and fetched through two staging pages", Jobs: two, Staging: 2},
		{Name: "delayed-abort", About: "one chunk is offered, deferred and fetched, and a command is aborted, also the put", Jobs: one,
			Faults: 1, Abort: true},
		{Name: "delayed-abandon", About: "one chunk is offered and deferred, then fetched, abandoned, or fetched late", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultAbandon, plan.FaultPutOff}},
		{Name: "delayed-crash-receiver", About: "one chunk is offered, deferred and fetched, the reader crashes once, at any point", Jobs: one,
			Faults: 1, CrashReceiver: true},
		{Name: "delayed-crash-sender", About: "one chunk is offered, deferred and fetched, the owner crashes once, at any point", Jobs: one,
			Faults: 1, CrashSender: true},
		{Name: "delayed-cut", About: "one chunk is offered, deferred and fetched, a connection or a link breaks", Jobs: one, Faults: 1,
			Cut: true},
		{Name: "delayed-device", About: "two chunks are offered, deferred and fetched, an import fails, a read or a scatter fails",
			Jobs: two, Staging: 2, Faults: 1, Strikes: device},
		{Name: "delayed-early", About: "one chunk is fetched before it is offered", Jobs: early},
		{Name: "delayed-lost", About: "one chunk is offered, deferred and fetched, a message is lost, at any point", Jobs: one, Faults: 1,
			Strikes: lost},
		{Name: "delayed-stall", About: "one chunk is offered, deferred and fetched, a process is frozen for any time", Jobs: one, Faults: 1,
			Stall: true},
		{Name: "delayed-late", About: "one chunk is offered, deferred and fetched, any deadline may expire first, also its read lease",
			Jobs: one, Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-delayed", About: "two chunks are offered, deferred and fetched over a leased plane", Leased: true, Jobs: two,
			Staging: 2},
		{Name: "leased-delayed-abort", About: "one chunk is offered, deferred and fetched over a leased plane, a command is aborted",
			Leased: true, Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-delayed-crash", About: "one chunk is offered, deferred and fetched over a leased plane, a node crashes once",
			Leased: true, Jobs: one,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-delayed-drain",
			About: "one chunk is offered, deferred and fetched over a leased plane, the reader drains, at any point", Leased: true, Jobs: one,
			Faults: 1, Drain: true},
		{Name: "leased-delayed-device", About: "two chunks are offered, deferred and fetched over a leased plane, a read or a scatter fails",
			Leased: true, Jobs: two, Staging: 2,
			Faults: 1, Strikes: device},
		{Name: "leased-delayed-lost", About: "one chunk is offered, deferred and fetched over a leased plane, a message is lost",
			Leased: true, Jobs: one, Faults: 1, Strikes: lost},
		{Name: "leased-delayed-stall",
			About: "one chunk is offered, deferred and fetched over a leased plane, a process is frozen for any time", Leased: true, Jobs: one,
			Faults: 1, Stall: true},
		{Name: "leased-delayed-late", About: "one chunk is offered, deferred and fetched over a leased plane, any deadline may expire first",
			Leased: true, Jobs: one, Timers: explore.TimersAny, Patience: 2},
	}
	for i := range all {
		all[i].Pull, all[i].Delay = true, true
	}
	return all
}
