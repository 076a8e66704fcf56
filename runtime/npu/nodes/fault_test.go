//go:build cgo && linux

package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A fault describes a failure that is injected below the vendor's interface, at the end that moves the bytes, before
// the first put, and the outcomes that are allowed.
type fault struct {
	rules    string // %s is Put or Get
	outcomes []effects.Code
	tries    int // of communicators; as configured if zero
	onlyWire wire
	remains  string // kind of objects that cannot be freed after the fault
	excused  string // rule that is broken then
}

// regionRemoved is the rule that is broken when a communicator could not be destroyed and its node closes: the memory
// is removed from the NIC all the same, which certainly ends the access.
const regionRemoved = "the last registration was taken back"

func anyOf(codes ...effects.Code) []effects.Code { return codes }

// shortTimeout is the limit for a batch or a copy in tests where one hangs.
const shortTimeout = time.Second

var transferFaults = map[string]fault{
	"a batch is refused":                {rules: "call:sym=HcclBatch%s,nth=1,code=4", outcomes: anyOf(effects.Faulted)},
	"a batch fails":                     {rules: "done:fail=1", outcomes: anyOf(effects.Faulted)},
	"a batch fails in its middle":       {rules: "done:partial=1,bytes=20000,code=507057", outcomes: anyOf(effects.Faulted)},
	"a batch hangs":                     {rules: "done:hang=1", outcomes: anyOf(effects.Expired)},
	"a batch hangs and would land late": {rules: "done:hang=1;late:ms=100", outcomes: anyOf(effects.Expired), onlyWire: roce},
	"the link is lost": {rules: "link:peer=*,down_after_ops=0,links=1,mode=error",
		outcomes: anyOf(effects.Faulted)},
	"the link is lost and hangs": {rules: "link:peer=*,down_after_ops=0,links=1,mode=hang",
		outcomes: anyOf(effects.Faulted, effects.Expired)},
	"the link is lost silently": {rules: "link:peer=*,down_after_ops=0,links=1,mode=silent",
		outcomes: anyOf(effects.Expired)},
	"each link is lost":     {rules: "link:peer=*,down_after_ops=0,mode=error", outcomes: anyOf(effects.Faulted)},
	"connecting fails once": {rules: "prepare:fail=1,code=9", outcomes: anyOf(effects.OK)},
	"connecting fails": {rules: "call:sym=HcclCommPrepare,nth=*,code=9",
		outcomes: anyOf(effects.Unreachable, effects.Expired), tries: 1},
	"connecting is slow": {rules: "prepare:delay=300", outcomes: anyOf(effects.OK)},
	"destroying is busy": {rules: "done:fail=1;destroy:busy=3", outcomes: anyOf(effects.Faulted)},
	"destroying fails": {rules: "done:fail=1;call:sym=HcclCommDestroy,nth=1,code=4",
		outcomes: anyOf(effects.Faulted), remains: "communicators", excused: regionRemoved},
	"aborting fails at first": {rules: "done:hang=1;call:sym=aclrtStreamAbort,nth=1,count=2,code=507000",
		outcomes: anyOf(effects.Expired, effects.Withdrawn)},
	"no stream is to be had": {rules: "call:sym=aclrtCreateStreamWithConfig,nth=*,code=207001",
		outcomes: anyOf(effects.Unreachable), tries: 1},
	"an event cannot be recorded": {rules: "call:sym=aclrtRecordEvent,nth=1,code=507000",
		outcomes: anyOf(effects.Faulted)},
}

// A failure below the interface fails at most one put, as the table of outcomes says. The receiver does not notice the
// failure, nothing is left, and the next put works.
func TestTransferFaults(t *testing.T) {
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(transferFaults)) {
		f := transferFaults[name]
		both := []string{"push", "pull"}
		if testing.Short() {
			both = both[i/2%2:][:1]
		}
		for _, mode := range both {
			for _, w := range wiresOf(i) {
				if f.onlyWire == "" || f.onlyWire == w {
					t.Run(fmt.Sprint(mode, " ", w, " ", name), func(t *testing.T) {
						t.Parallel()
						f.runTest(t, w, mode)
					})
				}
			}
		}
	}
}

func (f *fault) runTest(t *testing.T, w wire, mode string) {
	s, r := w.nodeAt(0, "sender", mode), w.nodeAt(1, "receiver", mode)
	s.Tries, r.Tries = f.tries, f.tries
	if slices.Contains(f.outcomes, effects.Expired) {
		s.Transfer, r.Transfer = shortTimeout, shortTimeout
	}
	if f.tries > 0 {
		s.Prepare, r.Prepare = time.Second, time.Second
	}
	room := newRunDir(t)
	var sender, receiver, faulty *process
	rules := strings.ReplaceAll(f.rules, "%s", map[string]string{"push": "Put", "pull": "Get"}[mode])
	if mode == "push" {
		sender, receiver = room.startProcess("the sender", "FAULTS="+rules), room.startProcess("the receiver")
		faulty = sender
	} else {
		sender, receiver = room.startProcess("the sender"), room.startProcess("the receiver", "FAULTS="+rules)
		faulty = receiver
	}
	p := &pair{t: t, mode: mode, sender: sender, receiver: receiver, peer: receiver.openNode(r)}
	sender.openNode(s)
	keys := keysOf("faulty", 2)
	timeout := limit / 2
	if slices.Contains(f.outcomes, effects.Unreachable) {
		timeout = 2 * time.Second // Until then the put is tried again.
	}
	got := sender.ask(order{Op: "put", Peer: p.peer, Keys: keys, Timeout: timeout})
	if !slices.Contains(f.outcomes, got.Code) {
		t.Errorf("the put ended as %v (%s), want %v", got.Code, got.Text, f.outcomes)
	}
	if faulty.readCounters("stats")["injected"] == 0 {
		t.Error("no fault was injected")
	}
	sender.mustDo(order{Op: "reclaim"})
	receiver.mustDo(order{Op: "await", Argument: "quiet"})
	if w := receiver.mustDo(order{Op: "get", Keys: keys}); w.Wrong != 0 ||
		(w.Hits == len(keys)) != (got.Code == effects.OK) {
		t.Errorf("%d chunks are there, %d of them wrong, of a put that ended as %v", w.Hits, w.Wrong, got.Code)
	}

	t.Log("# afterwards all is as it was")
	faulty.mustDo(order{Op: "control", Argument: "clear"})
	faulty.awaitNone("late_transfers")
	after := keysOf("after", 6)
	putUntilSuccess(t, sender, p.peer, after)
	p.wantFetched(after)
	faulty.remains, faulty.excused = f.remains, f.excused
	p.closeBoth()
}

// Chunks that a sender offers from host memory are read and scattered by the receiver's device. A failure there fails
// the fetch.
func TestCopyFaults(t *testing.T) {
	for name, c := range map[string]struct {
		rules string
		ends  []effects.Code
	}{
		"a scatter is refused":    {"call:sym=aclrtMemcpyAsync,nth=1,code=507000", anyOf(effects.Faulted)},
		"a scatter fails":         {"done:fail=1,of=copy,code=507035", anyOf(effects.Faulted)},
		"a scatter stops halfway": {"done:partial=1,of=copy,bytes=5000,code=507035", anyOf(effects.Faulted)},
		"a scatter hangs":         {"done:hang=1,of=copy", anyOf(effects.Faulted, effects.Expired)},
		"a read fails":            {"done:fail=1", anyOf(effects.Faulted)},
		"a read hangs":            {"done:hang=1", anyOf(effects.Faulted, effects.Expired)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r := roce.nodeAt(0, "sender", "offload"), roce.nodeAt(1, "receiver", "offload")
			if slices.Contains(c.ends, effects.Expired) {
				r.StuckAfter, r.Transfer = shortTimeout, shortTimeout
			}
			room := newRunDir(t)
			p := &pair{t: t, mode: "offload", sender: room.startProcess("the sender"),
				receiver: room.startProcess("the receiver", "FAULTS="+c.rules)}
			p.peer = p.receiver.openNode(r)
			p.sender.openNode(s)
			keys := keysOf("faulty", 4)
			p.sender.mustDo(order{Op: "put", Peer: p.peer, Keys: keys})
			got := p.receiver.ask(order{Op: "fetch", Keys: keys})
			if got.Wrong != 0 || got.Hits == len(keys) {
				t.Errorf("the engine took %d chunks, %d of them wrong", got.Hits, got.Wrong)
			}
			if !slices.Contains(c.ends, got.Code) {
				t.Errorf("it ended as %v (%s), want %v", got.Code, got.Text, c.ends)
			}
			if p.receiver.readCounters("stats")["injected"] == 0 {
				t.Error("no fault was injected")
			}
			p.sender.mustDo(order{Op: "reclaim"})
			p.receiver.mustDo(order{Op: "await", Argument: "nothing"})
			p.receiver.mustDo(order{Op: "control", Argument: "clear"})
			p.wantMoved("after", 6)
			p.closeBoth()
		})
	}
}
