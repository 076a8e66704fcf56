package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// pushScopes returns the scopes in which chunks are pushed.
func pushScopes() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	two := []explore.Job{{Chunks: []int{1, 2}, Batch: 1}}
	shared := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{1}}}
	apart := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{2}}}
	both := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no node is notified of the loss
	var drawn []plan.Fault
	for _, f := range plan.Faults() {
		if !f.IsScheduled() {
			drawn = append(drawn, f)
		}
	}
	return []explore.Scope{
		{Name: "push", Description: "one chunk is pushed, no faults", Jobs: one},
		{Name: "push-abort", Description: "one chunk is pushed, a command is aborted, at any point", Jobs: one, Faults: 1, Abort: true},
		{Name: "push-crash-receiver", Description: "one chunk is pushed, the receiver crashes once, at any point", Jobs: one, Faults: 1,
			CrashReceiver: true},
		{Name: "push-crash-sender", Description: "one chunk is pushed, the sender crashes once, at any point", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "push-crashes", Description: "one chunk is pushed, with two crashes of any nodes at any point", Jobs: one, Faults: 2,
			CrashSender: true, CrashReceiver: true},
		{Name: "push-cut", Description: "one chunk is pushed, a connection or a link breaks, at any point", Jobs: one, Faults: 1,
			Cut: true},
		{Name: "push-late", Description: "one chunk is pushed, any deadline may expire before any event", Jobs: one,
			Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "push-late-again", Description: "as push-late, with time for a second attempt", Jobs: one, Timers: explore.TimersAny,
			PutTimeout: 4},
		{Name: "push-late-units", Description: "as push-late, with time in discrete units", Jobs: one,
			Timers: explore.TimersUnits, PutTimeout: 2},
		{Name: "push-late-crash", Description: "one chunk is pushed, any deadline may expire first, a node crashes once", Jobs: one,
			Timers: explore.TimersAny, PutTimeout: 2,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "push-lost", Description: "one chunk is pushed, a request or a reply is lost, at any point", Jobs: one, Faults: 1,
			DrawnFaults: lost},
		{Name: "push-stall", Description: "one chunk is pushed, a process is frozen for any time, at any point", Jobs: one, Faults: 1,
			Stall: true},
		{Name: "push-device", Description: "one chunk is pushed, an import fails, a push is refused or stops halfway", Jobs: one, Faults: 1,
			DrawnFaults: []plan.Fault{plan.FaultImportFailed, plan.FaultPushRefused, plan.FaultDMAFailed}},
		{Name: "push-refused", Description: "one chunk is pushed, a transport refuses an effect", Jobs: one, Faults: 1,
			DrawnFaults: []plan.Fault{plan.FaultEffectRefused}},
		{Name: "push-again", Description: "one chunk is pushed, and an engine releases twice", Jobs: one, Faults: 1,
			DrawnFaults: []plan.Fault{plan.FaultReleasedTwice}},
		{Name: "push-any", Description: "one chunk is pushed, with any one fault that campaigns draw during a run, at any point",
			Jobs: one, Faults: 1,
			DrawnFaults: drawn},
		{Name: "push-any-two", Description: "as push-any, with any two faults", Jobs: one, Faults: 2, DrawnFaults: drawn},
		{Name: "batch-any", Description: "two chunks are pushed in one batch, with any one fault", Jobs: []explore.Job{{Chunks: []int{1,
			2}}},
			Faults: 1, DrawnFaults: drawn},
		{Name: "leased-any", Description: "two chunks are pushed in one batch over a leased plane, with any one fault", Leased: true,
			Jobs:   []explore.Job{{Chunks: []int{1, 2}}},
			Faults: 1, DrawnFaults: drawn},
		{Name: "early", Description: "one chunk is pushed while its reader already waits",
			Jobs: []explore.Job{{Chunks: []int{1}, Early: true}}},
		{Name: "early-crash", Description: "one chunk is pushed while its reader already waits, and a node crashes once",
			Jobs: []explore.Job{{Chunks: []int{1}, Early: true}}, Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "batch", Description: "two chunks are pushed in one batch", Jobs: []explore.Job{{Chunks: []int{1, 2}}}},
		{Name: "batch-cut", Description: "two chunks are pushed in one batch, a connection or a link breaks",
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Cut: true},
		{Name: "batches", Description: "two chunks are pushed in two batches", Jobs: two},
		{Name: "batches-abort", Description: "two chunks are pushed in two batches, a command is aborted", Jobs: two, Faults: 1,
			Abort: true},
		{Name: "batches-crash", Description: "two chunks are pushed in two batches, a node crashes once", Jobs: two, Faults: 1,
			CrashSender: true, CrashReceiver: true},
		{Name: "shared", Description: "two senders push the same chunk", Senders: 2, Jobs: shared},
		{Name: "shared-lost", Description: "two senders push the same chunk, a request or a reply is lost", Senders: 2,
			Jobs: shared, Faults: 1, DrawnFaults: lost},
		{Name: "full", Description: "two senders, room for one chunk: one sender waits", Senders: 2, ReceiverPages: 1, Jobs: apart},
		{Name: "full-lost", Description: "two senders, room for one chunk, and a request or a reply is lost", Senders: 2,
			ReceiverPages: 1, Jobs: apart, Faults: 1, DrawnFaults: lost},
		{Name: "waiter", Description: "one sender with one page and two requests: the second request waits for the page", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}},
		{Name: "waiter-abort", Description: "as waiter, and a command is aborted", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}, Faults: 1, Abort: true},
		{Name: "waiters", Description: "one sender with one page and three requests: two requests wait for the page", SenderPages: 1,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}, {Chunks: []int{3}}}},
		{Name: "two-crash", Description: "one sender with two requests, a node crashes once", Jobs: both, Faults: 1,
			CrashSender: true, CrashReceiver: true},
		{Name: "leased-two-crash", Description: "one sender with two requests over a leased plane, the receiver crashes once",
			Leased: true, Jobs: both, Faults: 1, CrashReceiver: true},
		{Name: "leased-batch-stall",
			Description: "two chunks are pushed in one batch over a leased plane, a process is frozen for any time",
			Leased:      true,
			Jobs:        []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, Stall: true},
		{Name: "leased", Description: "one chunk is pushed over a leased plane", Leased: true, Jobs: one},
		{Name: "leased-abort", Description: "one chunk is pushed over a leased plane, a command is aborted", Leased: true, Jobs: one,
			Faults: 1, Abort: true},
		{Name: "leased-crash", Description: "one chunk is pushed over a leased plane, a node crashes once", Leased: true, Jobs: one,
			Faults: 1, CrashSender: true, CrashReceiver: true},
		{Name: "leased-cut", Description: "one chunk is pushed over a leased plane, a connection or a link breaks", Leased: true, Jobs: one,
			Faults: 1, Cut: true},
		{Name: "leased-device", Description: "two chunks are pushed in one batch over a leased plane, an import fails or a " +
			"transfer stops halfway", Leased: true,
			Jobs: []explore.Job{{Chunks: []int{1, 2}}}, Faults: 1, DrawnFaults: []plan.Fault{plan.FaultImportFailed, plan.FaultDMAFailed}},
		{Name: "leased-lost", Description: "one chunk is pushed over a leased plane, a request or a reply is lost", Leased: true, Jobs: one,
			Faults: 1, DrawnFaults: lost},
		{Name: "leased-full", Description: "two senders over a leased plane, room for one chunk", Leased: true, Senders: 2,
			ReceiverPages: 1, Jobs: apart},
		{Name: "leased-late", Description: "one chunk is pushed over a leased plane, any deadline may expire first", Leased: true,
			Jobs:   one,
			Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "leased-late-units", Description: "as leased-late, with time in discrete units",
			Leased: true, Jobs: one,
			Timers: explore.TimersUnits, PutTimeout: 2},
		{Name: "leased-late-batch", Description: "two chunks are pushed in one batch over a leased plane, any deadline may expire first",
			Leased: true,
			Jobs:   []explore.Job{{Chunks: []int{1, 2}}}, Timers: explore.TimersAny, PutTimeout: 2},
		{Name: "leased-stall", Description: "one chunk is pushed over a leased plane, a process is frozen for any time", Leased: true,
			Jobs:   one,
			Faults: 1, Stall: true},
	}
}
