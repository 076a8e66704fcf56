package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// pull returns the scopes in which receivers read chunks from senders.
func pull() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	batch := []explore.Job{{Chunks: []int{1, 2}}}
	both := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost, plan.FaultDoneLost}
	device := []plan.Fault{plan.FaultImport, plan.FaultPushRefused, plan.FaultDMA, plan.FaultHalfPage}
	all := []explore.Scope{
		{Name: "pull", About: "one chunk is pulled, no faults", Jobs: one},
		{Name: "pull-abort", About: "one chunk is pulled, a command is aborted, at any point", Jobs: one, Faults: 1, Abort: true},
		{Name: "pull-batch", About: "two chunks are pulled in one batch", Jobs: batch},
		{Name: "pull-crash-receiver", About: "one chunk is pulled, the reader crashes once, at any point", Jobs: one, Faults: 1,
			CrashReceiver: true},
		{Name: "pull-crash-sender", About: "one chunk is pulled, the owner crashes once, at any point", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "pull-cut", About: "one chunk is pulled, a connection or a link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "pull-device", About: "one chunk is pulled, an import fails, a read is refused or stops halfway", Jobs: one,
			Faults: 1, Strikes: device},
		{Name: "pull-doubled", About: "one chunk is pulled, and the done message is sent twice", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultDoubled}},
		{Name: "pull-lost", About: "one chunk is pulled, a message is lost, at any point", Jobs: one, Faults: 1, Strikes: lost},
		{Name: "pull-stall", About: "one chunk is pulled, a process is frozen for any time, at any point", Jobs: one, Faults: 1,
			Stall: true},
		{Name: "pull-late", About: "one chunk is pulled, any deadline may expire before any event", Jobs: one,
			Timers: explore.TimersAny, Patience: 2},
		{Name: "pull-waiter", About: "two requests are pulled, and only one of them can lease its pages at a time",
			SenderPages: 2, ReservePPM: 500_000, Jobs: both},
		{Name: "leased-pull", About: "one chunk is pulled over a leased plane", Leased: true, Jobs: one},
		{Name: "leased-pull-abort", About: "one chunk is pulled over a leased plane, a command is aborted", Leased: true,
			Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-pull-drain-cut", About: "one chunk is pulled over a leased plane, the node drains and a connection breaks",
			Leased: true, Jobs: one, Faults: 2, Drain: true, Cut: true},
		{Name: "leased-pull-crash", About: "one chunk is pulled over a leased plane, a node crashes once", Leased: true,
			Jobs: one, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-pull-device", About: "two chunks are pulled in one batch over a leased plane, an import fails or " +
			"the read stops halfway", Leased: true, Jobs: batch,
			Faults: 1, Strikes: device},
		{Name: "leased-pull-late", About: "one chunk is pulled over a leased plane, any deadline may expire first", Leased: true,
			Jobs: one, Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-pull-lost", About: "one chunk is pulled over a leased plane, a message is lost", Leased: true, Jobs: one,
			Faults: 1, Strikes: lost},
		{Name: "leased-pull-stall", About: "one chunk is pulled over a leased plane, a process is frozen for any time",
			Leased: true, Jobs: one, Faults: 1, Stall: true},
	}
	for i := range all {
		all[i].Pull = true
	}
	return all
}
