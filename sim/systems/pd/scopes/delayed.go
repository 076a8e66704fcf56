package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// delayedScopes returns the scopes of receivers that defer offers until the engine fetches. A fetch reads into a single
// staging page unless the scope specifies more.
func delayedScopes() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	two := []explore.Job{{Chunks: []int{1, 2}}}
	early := []explore.Job{{Chunks: []int{1}, Early: true}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost, plan.FaultDoneLost}
	device := []plan.Fault{plan.FaultImportFailed, plan.FaultPushRefused, plan.FaultDMAFailed, plan.FaultHalfPage}
	all := []explore.Scope{
		{Name: "delayed", Description: "one chunk is offered, deferred and fetched, no faults", Jobs: one},
		{Name: "delayed-batch", Description: "two chunks are offered, deferred and fetched through two staging pages", Jobs: two,
			Staging: 2},
		{Name: "delayed-abort", Description: "one chunk is offered, deferred and fetched, and a command is aborted, also the put",
			Jobs:   one,
			Faults: 1, Abort: true},
		{Name: "delayed-abandon", Description: "one chunk is offered and deferred, then fetched, abandoned, or fetched late", Jobs: one,
			Faults:      1,
			DrawnFaults: []plan.Fault{plan.FaultRequestAbandoned, plan.FaultFetchDelayed}},
		{Name: "delayed-crash-receiver",
			Description: "one chunk is offered, deferred and fetched, the reader crashes once, at any point", Jobs: one,
			Faults: 1, CrashReceiver: true},
		{Name: "delayed-crash-sender", Description: "one chunk is offered, deferred and fetched, the owner crashes once, at any point",
			Jobs:   one,
			Faults: 1, CrashSender: true},
		{Name: "delayed-cut", Description: "one chunk is offered, deferred and fetched, a connection or a link breaks", Jobs: one,
			Faults: 1,
			Cut:    true},
		{Name: "delayed-device", Description: "two chunks are offered, deferred and fetched, an import fails, a read or a scatter fails",
			Jobs: two, Staging: 2, Faults: 1, DrawnFaults: device},
		{Name: "delayed-early", Description: "one chunk is fetched before it is offered", Jobs: early},
		{Name: "delayed-lost", Description: "one chunk is offered, deferred and fetched, a message is lost, at any point", Jobs: one,
			Faults:      1,
			DrawnFaults: lost},
		{Name: "delayed-stall", Description: "one chunk is offered, deferred and fetched, a process is frozen for any time", Jobs: one,
			Faults: 1,
			Stall:  true},
		{Name: "delayed-late",
			Description: "one chunk is offered, deferred and fetched, any deadline may expire first, also its read lease",
			Jobs:        one, Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "leased-delayed", Description: "two chunks are offered, deferred and fetched over a leased plane", Leased: true, Jobs: two,
			Staging: 2},
		{Name: "leased-delayed-abort", Description: "one chunk is offered, deferred and fetched over a leased plane, a command is aborted",
			Leased: true, Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-delayed-crash", Description: "one chunk is offered, deferred and fetched over a leased plane, a node crashes once",
			Leased: true, Jobs: one,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-delayed-drain",
			Description: "one chunk is offered, deferred and fetched over a leased plane, the reader drains, at any point", Leased: true,
			Jobs:   one,
			Faults: 1, Drain: true},
		{Name: "leased-delayed-device",
			Description: "two chunks are offered, deferred and fetched over a leased plane, a read or a scatter fails",
			Leased:      true, Jobs: two, Staging: 2,
			Faults: 1, DrawnFaults: device},
		{Name: "leased-delayed-lost", Description: "one chunk is offered, deferred and fetched over a leased plane, a message is lost",
			Leased: true, Jobs: one, Faults: 1, DrawnFaults: lost},
		{Name: "leased-delayed-stall",
			Description: "one chunk is offered, deferred and fetched over a leased plane, a process is frozen for any time",
			Leased:      true, Jobs: one,
			Faults: 1, Stall: true},
		{Name: "leased-delayed-late",
			Description: "one chunk is offered, deferred and fetched over a leased plane, any deadline may expire first",
			Leased:      true, Jobs: one, Timers: explore.TimersAny, PutTimeout: 2},
	}
	for i := range all {
		all[i].Pull, all[i].Delay = true, true
	}
	return all
}
