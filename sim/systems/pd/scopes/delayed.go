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
		{Name: "delayed", About: "one chunk is kept and fetched, nothing goes wrong", Jobs: one},
		{Name: "delayed-batch", About: "two chunks are kept and fetched through two staging pages", Jobs: two, Staging: 2},
		{Name: "delayed-abort", About: "one chunk is kept and fetched, one command is aborted: its put's, too", Jobs: one,
			Faults: 1, Abort: true},
		{Name: "delayed-abandon", About: "one chunk is kept, and fetched, abandoned, or fetched late", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultAbandon, plan.FaultPutOff}},
		{Name: "delayed-crash-receiver", About: "one chunk is kept and fetched, its reader dies once, anywhere", Jobs: one,
			Faults: 1, CrashReceiver: true},
		{Name: "delayed-crash-sender", About: "one chunk is kept and fetched, its owner dies once, anywhere", Jobs: one,
			Faults: 1, CrashSender: true},
		{Name: "delayed-cut", About: "one chunk is kept and fetched, one connection or link breaks", Jobs: one, Faults: 1,
			Cut: true},
		{Name: "delayed-device", About: "two chunks are kept and fetched, an import fails, a read or a scatter fails",
			Jobs: two, Staging: 2, Faults: 1, Strikes: device},
		{Name: "delayed-early", About: "one chunk is fetched before it is offered", Jobs: early},
		{Name: "delayed-lost", About: "one chunk is kept and fetched, one message is lost, anywhere", Jobs: one, Faults: 1,
			Strikes: lost},
		{Name: "delayed-stall", About: "one chunk is kept and fetched, one process stops for any time", Jobs: one, Faults: 1,
			Stall: true},
		{Name: "delayed-late", About: "one chunk is kept and fetched, everything may be late: its lease may end first",
			Jobs: one, Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-delayed", About: "two chunks are kept and fetched on a leased plane", Leased: true, Jobs: two,
			Staging: 2},
		{Name: "leased-delayed-abort", About: "one chunk is kept and fetched on a leased plane, one command is aborted",
			Leased: true, Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-delayed-crash", About: "one chunk is kept and fetched on a leased plane, either node dies once",
			Leased: true, Jobs: one,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-delayed-drain",
			About: "one chunk is kept and fetched on a leased plane, its reader drains, at any moment", Leased: true, Jobs: one,
			Faults: 1, Drain: true},
		{Name: "leased-delayed-device", About: "two chunks are kept and fetched on a leased plane, a read or a scatter fails",
			Leased: true, Jobs: two, Staging: 2,
			Faults: 1, Strikes: device},
		{Name: "leased-delayed-lost", About: "one chunk is kept and fetched on a leased plane, one message is lost",
			Leased: true, Jobs: one, Faults: 1, Strikes: lost},
		{Name: "leased-delayed-stall",
			About: "one chunk is kept and fetched on a leased plane, one process stops for any time", Leased: true, Jobs: one,
			Faults: 1, Stall: true},
		{Name: "leased-delayed-late", About: "one chunk is kept and fetched on a leased plane, everything may be late",
			Leased: true, Jobs: one, Timers: explore.TimersAny, Patience: 2},
	}
	for i := range all {
		all[i].Pull, all[i].Delay = true, true
	}
	return all
}
