package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// push returns the scopes in which chunks are pushed.
func push() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	two := []explore.Job{{Chunks: []int{1, 2}, Batch: 1}}
	shared := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{1}}}
	apart := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{2}}}
	both := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no node is notified of the loss
	var drawn []plan.Fault
	for _, f := range plan.Faults() {
		if !f.Scheduled() {
			drawn = append(drawn, f)
		}
	}
	return []explore.Scope{
		{Name: "push", About: "one chunk, nothing goes wrong", Jobs: one},
		{Name: "push-abort", About: "one chunk, one command is aborted, anywhere", Jobs: one, Faults: 1, Abort: true},
		{Name: "push-crash-receiver", About: "one chunk, the receiver dies once, anywhere", Jobs: one, Faults: 1,
			CrashReceiver: true},
		{Name: "push-crash-sender", About: "one chunk, the sender dies once, anywhere", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "push-crashes", About: "one chunk, two deaths, of either node, anywhere", Jobs: one, Faults: 2,
			CrashSender: true, CrashReceiver: true},
		{Name: "push-cut", About: "one chunk, one connection or link breaks, anywhere", Jobs: one, Faults: 1, Cut: true},
		{Name: "push-late", About: "one chunk, everything may be late: any deadline may pass first", Jobs: one,
			Timers: explore.TimersAny, Patience: 2},
		{Name: "push-late-again", About: "the same with time for a second attempt", Jobs: one, Timers: explore.TimersAny,
			Patience: 4},
		{Name: "push-late-units", About: "one chunk, everything may be late, time passes in units", Jobs: one,
			Timers: explore.TimersUnits, Patience: 2},
		{Name: "push-late-crash", About: "one chunk, everything may be late, either node dies once", Jobs: one,
			Timers: explore.TimersAny, Patience: 2,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "push-lost", About: "one chunk, one request or reply is lost, anywhere", Jobs: one, Faults: 1, Strikes: lost},
		{Name: "push-stall", About: "one chunk, one process stops for any time, anywhere", Jobs: one, Faults: 1, Stall: true},
		{Name: "push-device", About: "one chunk, an import fails, a push is refused or stops half-way", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultImport, plan.FaultPushRefused, plan.FaultDMA}},
		{Name: "push-refused", About: "one chunk, a transport refuses an effect", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultRefused}},
		{Name: "push-again", About: "one chunk, an engine releases twice", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultAgain}},
		{Name: "push-any", About: "one chunk, any fault that campaigns draw on the fly, anywhere", Jobs: one, Faults: 1,
			Strikes: drawn},
		{Name: "push-any-two", About: "one chunk, any two of them", Jobs: one, Faults: 2, Strikes: drawn},
		{Name: "batch-any", About: "two chunks in one batch, any one of them", Jobs: []explore.Job{{Chunks: []int{1, 2}}},
			Faults: 1, Strikes: drawn},
		{Name: "leased-any", About: "two chunks in one batch on a leased plane, any one of them", Leased: true,
			Jobs:   []explore.Job{{Chunks: []int{1, 2}}},
			Faults: 1, Strikes: drawn},
		{Name: "early", About: "one chunk, its reader waits before it is sent",
			Jobs: []explore.Job{{Chunks: []int{1}, Early: true}}},
		{Name: "early-crash", About: "one chunk, its reader waits before it is sent, either node dies once",
			Jobs: []explore.Job{{Chunks: []int{1}, Early: true}}, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "batch", About: "two chunks in one batch", Jobs: []explore.Job{{Chunks: []int{1, 2}}}},
		{Name: "batch-cut", About: "two chunks in one batch, one connection or link breaks",
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Cut: true},
		{Name: "batches", About: "two chunks in two batches", Jobs: two},
		{Name: "batches-abort", About: "two chunks in two batches, one command is aborted", Jobs: two, Faults: 1,
			Abort: true},
		{Name: "batches-crash", About: "two chunks in two batches, either node dies once", Jobs: two, Faults: 1,
			CrashSender: true, CrashReceiver: true},
		{Name: "shared", About: "two senders push the same chunk", Senders: 2, Jobs: shared},
		{Name: "shared-lost", About: "two senders push the same chunk, one request or reply is lost", Senders: 2,
			Jobs: shared, Faults: 1, Strikes: lost},
		{Name: "full", About: "two senders, room for one chunk: one waits", Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "full-lost", About: "two senders, room for one chunk, one request or reply is lost", Senders: 2,
			ReceiverPages: 1, Jobs: apart, Faults: 1, Strikes: lost},
		{Name: "waiter", About: "one sender with one page and two requests: the second one waits for it", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}},
		{Name: "waiter-abort", About: "the same, one command is aborted", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}, Faults: 1, Abort: true},
		{Name: "waiters", About: "one sender with one page and three requests: two wait for it", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}, {Chunks: []int{3}}}},
		{Name: "two-crash", About: "one sender with two requests, either node dies once", Jobs: both, Faults: 1,
			CrashSender: true, CrashReceiver: true},
		{Name: "leased-two-crash", About: "one sender with two requests on a leased plane, the receiver dies once",
			Leased: true, Jobs: both, Faults: 1, CrashReceiver: true},
		{Name: "leased-batch-stall", About: "two chunks in one batch on a leased plane, one process stops for any time",
			Leased: true,
			Jobs:   []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Stall: true},
		{Name: "leased", About: "one chunk on a leased plane", Leased: true, Jobs: one},
		{Name: "leased-abort", About: "one chunk on a leased plane, one command is aborted", Leased: true, Jobs: one,
			Faults: 1, Abort: true},
		{Name: "leased-crash", About: "one chunk on a leased plane, either node dies once", Leased: true, Jobs: one,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-cut", About: "one chunk on a leased plane, one connection or link breaks", Leased: true, Jobs: one,
			Faults: 1, Cut: true},
		{Name: "leased-device", About: "two chunks in one batch on a leased plane, an import fails or a transfer stops " +
			"half-way", Leased: true,
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Strikes: []plan.Fault{plan.FaultImport, plan.FaultDMA}},
		{Name: "leased-lost", About: "one chunk on a leased plane, one request or reply is lost", Leased: true, Jobs: one,
			Faults: 1, Strikes: lost},
		{Name: "leased-full", About: "two senders on a leased plane, room for one chunk", Leased: true, Senders: 2,
			ReceiverPages: 1, Jobs: apart},
		{Name: "leased-late", About: "one chunk on a leased plane, everything may be late", Leased: true, Jobs: one,
			Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-late-units", About: "one chunk on a leased plane, everything may be late, time passes in units",
			Leased: true, Jobs: one,
			Timers: explore.TimersUnits, Patience: 2},
		{Name: "leased-late-batch", About: "two chunks in one batch on a leased plane, everything may be late", Leased: true,
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-stall", About: "one chunk on a leased plane, one process stops for any time", Leased: true, Jobs: one,
			Faults: 1, Stall: true},
	}
}
