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
		{Name: "push", About: "one chunk is pushed, no faults", Jobs: one},
		{Name: "push-abort", About: "one chunk is pushed, a command is aborted, at any point", Jobs: one, Faults: 1, Abort: true},
		{Name: "push-crash-receiver", About: "one chunk is pushed, the receiver crashes once, at any point", Jobs: one, Faults: 1,
			CrashReceiver: true},
		{Name: "push-crash-sender", About: "one chunk is pushed, the sender crashes once, at any point", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "push-crashes", About: "one chunk is pushed, with two crashes of any nodes at any point", Jobs: one, Faults: 2,
			CrashSender: true, CrashReceiver: true},
		{Name: "push-cut", About: "one chunk is pushed, a connection or a link breaks, at any point", Jobs: one, Faults: 1, Cut: true},
		{Name: "push-late", About: "one chunk is pushed, any deadline may expire before any event", Jobs: one,
			Timers: explore.TimersAny, Patience: 2},
		{Name: "push-late-again", About: "as push-late, with time for a second attempt", Jobs: one, Timers: explore.TimersAny,
			Patience: 4},
		{Name: "push-late-units", About: "as push-late, with time in discrete units", Jobs: one,
			Timers: explore.TimersUnits, Patience: 2},
		{Name: "push-late-crash", About: "one chunk is pushed, any deadline may expire first, a node crashes once", Jobs: one,
			Timers: explore.TimersAny, Patience: 2,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "push-lost", About: "one chunk is pushed, a request or a reply is lost, at any point", Jobs: one, Faults: 1, Strikes: lost},
		{Name: "push-stall", About: "one chunk is pushed, a process is frozen for any time, at any point", Jobs: one, Faults: 1, Stall: true},
		{Name: "push-device", About: "one chunk is pushed, an import fails, a push is refused or stops halfway", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultImport, plan.FaultPushRefused, plan.FaultDMA}},
		{Name: "push-refused", About: "one chunk is pushed, a transport refuses an effect", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultRefused}},
		{Name: "push-again", About: "one chunk is pushed, and an engine releases twice", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultAgain}},
		{Name: "push-any", About: "one chunk is pushed, with any one fault that campaigns draw during a run, at any point", Jobs: one, Faults: 1,
			Strikes: drawn},
		{Name: "push-any-two", About: "as push-any, with any two faults", Jobs: one, Faults: 2, Strikes: drawn},
		{Name: "batch-any", About: "two chunks are pushed in one batch, with any one fault", Jobs: []explore.Job{{Chunks: []int{1, 2}}},
			Faults: 1, Strikes: drawn},
		{Name: "leased-any", About: "two chunks are pushed in one batch over a leased plane, with any one fault", Leased: true,
			Jobs:   []explore.Job{{Chunks: []int{1, 2}}},
			Faults: 1, Strikes: drawn},
		{Name: "early", About: "one chunk is pushed while its reader already waits",
			Jobs: []explore.Job{{Chunks: []int{1}, Early: true}}},
		{Name: "early-crash", About: "one chunk is pushed while its reader already waits, and a node crashes once",
			Jobs: []explore.Job{{Chunks: []int{1}, Early: true}}, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "batch", About: "two chunks are pushed in one batch", Jobs: []explore.Job{{Chunks: []int{1, 2}}}},
		{Name: "batch-cut", About: "two chunks are pushed in one batch, a connection or a link breaks",
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Cut: true},
		{Name: "batches", About: "two chunks are pushed in two batches", Jobs: two},
		{Name: "batches-abort", About: "two chunks are pushed in two batches, a command is aborted", Jobs: two, Faults: 1,
			Abort: true},
		{Name: "batches-crash", About: "two chunks are pushed in two batches, a node crashes once", Jobs: two, Faults: 1,
			CrashSender: true, CrashReceiver: true},
		{Name: "shared", About: "two senders push the same chunk", Senders: 2, Jobs: shared},
		{Name: "shared-lost", About: "two senders push the same chunk, a request or a reply is lost", Senders: 2,
			Jobs: shared, Faults: 1, Strikes: lost},
		{Name: "full", About: "two senders, room for one chunk: one sender waits", Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "full-lost", About: "two senders, room for one chunk, and a request or a reply is lost", Senders: 2,
			ReceiverPages: 1, Jobs: apart, Faults: 1, Strikes: lost},
		{Name: "waiter", About: "one sender with one page and two requests: the second request waits for the page", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}},
		{Name: "waiter-abort", About: "as waiter, and a command is aborted", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}, Faults: 1, Abort: true},
		{Name: "waiters", About: "one sender with one page and three requests: two requests wait for the page", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}, {Chunks: []int{3}}}},
		{Name: "two-crash", About: "one sender with two requests, a node crashes once", Jobs: both, Faults: 1,
			CrashSender: true, CrashReceiver: true},
		{Name: "leased-two-crash", About: "one sender with two requests over a leased plane, the receiver crashes once",
			Leased: true, Jobs: both, Faults: 1, CrashReceiver: true},
		{Name: "leased-batch-stall", About: "two chunks are pushed in one batch over a leased plane, a process is frozen for any time",
			Leased: true,
			Jobs:   []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Stall: true},
		{Name: "leased", About: "one chunk is pushed over a leased plane", Leased: true, Jobs: one},
		{Name: "leased-abort", About: "one chunk is pushed over a leased plane, a command is aborted", Leased: true, Jobs: one,
			Faults: 1, Abort: true},
		{Name: "leased-crash", About: "one chunk is pushed over a leased plane, a node crashes once", Leased: true, Jobs: one,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-cut", About: "one chunk is pushed over a leased plane, a connection or a link breaks", Leased: true, Jobs: one,
			Faults: 1, Cut: true},
		{Name: "leased-device", About: "two chunks are pushed in one batch over a leased plane, an import fails or a " +
			"transfer stops halfway", Leased: true,
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Strikes: []plan.Fault{plan.FaultImport, plan.FaultDMA}},
		{Name: "leased-lost", About: "one chunk is pushed over a leased plane, a request or a reply is lost", Leased: true, Jobs: one,
			Faults: 1, Strikes: lost},
		{Name: "leased-full", About: "two senders over a leased plane, room for one chunk", Leased: true, Senders: 2,
			ReceiverPages: 1, Jobs: apart},
		{Name: "leased-late", About: "one chunk is pushed over a leased plane, any deadline may expire first", Leased: true, Jobs: one,
			Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-late-units", About: "as leased-late, with time in discrete units",
			Leased: true, Jobs: one,
			Timers: explore.TimersUnits, Patience: 2},
		{Name: "leased-late-batch", About: "two chunks are pushed in one batch over a leased plane, any deadline may expire first", Leased: true,
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Timers: explore.TimersAny, Patience: 2},
		{Name: "leased-stall", About: "one chunk is pushed over a leased plane, a process is frozen for any time", Leased: true, Jobs: one,
			Faults: 1, Stall: true},
	}
}
