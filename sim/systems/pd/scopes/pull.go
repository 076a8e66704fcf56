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
		{Name: "pull", About: "one chunk is read, nothing goes wrong", Jobs: one},
		{Name: "pull-abort", About: "one chunk is read, one command is aborted, anywhere", Jobs: one, Faults: 1, Abort: true},
		{Name: "pull-batch", About: "two chunks in one batch are read", Jobs: batch},
		{Name: "pull-crash-receiver", About: "one chunk is read, its reader dies once, anywhere", Jobs: one, Faults: 1,
			CrashReceiver: true},
		{Name: "pull-crash-sender", About: "one chunk is read, its owner dies once, anywhere", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "pull-cut", About: "one chunk is read, one connection or link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "pull-device", About: "one chunk is read, an import fails, a read is refused or stops half-way", Jobs: one,
			Faults: 1, Strikes: device},
		{Name: "pull-doubled", About: "one chunk is read, the message that says so is sent twice", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultDoubled}},
		{Name: "pull-lost", About: "one chunk is read, one message is lost, anywhere", Jobs: one, Faults: 1, Strikes: lost},
		{Name: "pull-stall", About: "one chunk is read, one process stops for any time, anywhere", Jobs: one, Faults: 1,
			Stall: true},
		{Name: "pull-late", About: "one chunk is read, everything may be late: any deadline may pass first", Jobs: one,
			Timers: explore.TimersAny, Patience: 2},
		{Name: "pull-waiter", About: "two requests, of whose pages one may be leased at a time",
			SenderPages: 2, ReservePPM: 500_000, Jobs: both},
		{Name: "leased-pull", About: "one chunk is read on a leased plane", Leased: true, Jobs: one},
		{Name: "leased-pull-abort", About: "one chunk is read on a leased plane, one command is aborted", Leased: true,
			Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-pull-drain-cut", About: "one leased read, a drain and a cut",
			Leased: true, Jobs: one, Faults: 2, Drain: true, Cut: true},
		{Name: "leased-pull-crash", About: "one chunk is read on a leased plane, either node dies once", Leased: true,
			Jobs: one, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-pull-device", About: "two chunks in one batch are read on a leased plane, an import fails or the " +
			"read stops half-way", Leased: true, Jobs: batch,
			Faults: 1, Strikes: device},
		{Name: "leased-pull-late", About: "one chunk is read on a leased plane, everything may be late", Leased: true,
			Jobs: one, Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-pull-lost", About: "one chunk is read on a leased plane, one message is lost", Leased: true, Jobs: one,
			Faults: 1, Strikes: lost},
		{Name: "leased-pull-stall", About: "one chunk is read on a leased plane, one process stops for any time",
			Leased: true, Jobs: one, Faults: 1, Stall: true},
	}
	for i := range all {
		all[i].Pull = true
	}
	return all
}
