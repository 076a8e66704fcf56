package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// pullScopes returns the scopes in which receivers read chunks from senders.
func pullScopes() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	batch := []explore.Job{{Chunks: []int{1, 2}}}
	both := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost, plan.FaultDoneLost}
	device := []plan.Fault{plan.FaultImportFailed, plan.FaultPushRefused, plan.FaultDMAFailed, plan.FaultHalfPage}
	all := []explore.Scope{
		{Name: "pull", Description: "one chunk is pulled, no faults", Jobs: one},
		{Name: "pull-abort", Description: "one chunk is pulled, a command is aborted, at any point", Jobs: one, Faults: 1, Abort: true},
		{Name: "pull-batch", Description: "two chunks are pulled in one batch", Jobs: batch},
		{Name: "pull-crash-receiver", Description: "one chunk is pulled, the reader crashes once, at any point", Jobs: one, Faults: 1,
			CrashReceiver: true},
		{Name: "pull-crash-sender", Description: "one chunk is pulled, the owner crashes once, at any point", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "pull-cut", Description: "one chunk is pulled, a connection or a link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "pull-device", Description: "one chunk is pulled, an import fails, a read is refused or stops halfway", Jobs: one,
			Faults: 1, DrawnFaults: device},
		{Name: "pull-doubled", Description: "one chunk is pulled, and the done message is sent twice", Jobs: one, Faults: 1,
			DrawnFaults: []plan.Fault{plan.FaultPostDoubled}},
		{Name: "pull-lost", Description: "one chunk is pulled, a message is lost, at any point", Jobs: one, Faults: 1, DrawnFaults: lost},
		{Name: "pull-stall", Description: "one chunk is pulled, a process is frozen for any time, at any point", Jobs: one, Faults: 1,
			Stall: true},
		{Name: "pull-late", Description: "one chunk is pulled, any deadline may expire before any event", Jobs: one,
			Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "pull-waiter", Description: "two requests are pulled, and only one of them can lease its pages at a time",
			SenderPages: 2, ReservePPM: 500_000, Jobs: both},
		{Name: "leased-pull", Description: "one chunk is pulled over a leased plane", Leased: true, Jobs: one},
		{Name: "leased-pull-abort", Description: "one chunk is pulled over a leased plane, a command is aborted", Leased: true,
			Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-pull-drain-cut", Description: "one chunk is pulled over a leased plane, the node drains and a connection breaks",
			Leased: true, Jobs: one, Faults: 2, Drain: true, Cut: true},
		{Name: "leased-pull-crash", Description: "one chunk is pulled over a leased plane, a node crashes once", Leased: true,
			Jobs: one, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-pull-device", Description: "two chunks are pulled in one batch over a leased plane, an import fails or " +
			"the read stops halfway", Leased: true, Jobs: batch,
			Faults: 1, DrawnFaults: device},
		{Name: "leased-pull-late", Description: "one chunk is pulled over a leased plane, any deadline may expire first", Leased: true,
			Jobs: one, Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "leased-pull-lost", Description: "one chunk is pulled over a leased plane, a message is lost", Leased: true, Jobs: one,
			Faults: 1, DrawnFaults: lost},
		{Name: "leased-pull-stall", Description: "one chunk is pulled over a leased plane, a process is frozen for any time",
			Leased: true, Jobs: one, Faults: 1, Stall: true},
	}
	for i := range all {
		all[i].Pull = true
	}
	return all
}
