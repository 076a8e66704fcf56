//go:build cgo && linux

package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A sweep is a small scenario of two nodes in the same process, on two NPUs.
type sweep struct {
	mode   string
	wire   wire
	hidden []string
}

// playScenario plays the scenario. Every command must have an outcome. The results are the failed commands, and whether
// closing freed everything. With hurry all timeouts are short.
func (s *sweep) playScenario(p *process, name string, hurry bool) (failed []string, closed bool) {
	p.t.Helper()
	from, to, timeout := s.wire.nodeAt(0, "sender", s.mode), s.wire.nodeAt(1, "receiver", s.mode), limit/2
	to.Device = 1
	if hurry {
		timeout = 2 * time.Second
		for _, one := range []*nodeSpec{&from, &to} {
			one.Lease, one.Transfer, one.StuckAfter, one.Prepare, one.Tries = time.Second, shortTimeout, shortTimeout, time.Second, 2
		}
	}
	note := func(w reply, what string) bool {
		if w.Code != effects.OK {
			failed = append(failed, fmt.Sprintf("%s: %v (%s)", what, w.Code, w.Text))
		}
		return w.Code == effects.OK
	}
	keys, closed := keysOf(name, 3), true
	receiver := p.ask(order{Op: "open", Node: 1, Spec: &to})
	received := note(receiver, "open the receiver")
	sent := note(p.ask(order{Op: "open", Spec: &from}), "open the sender")
	if received && sent {
		put := note(p.ask(order{Op: "put", Peer: receiver.Peer, Keys: keys, Timeout: timeout}), "put")
		op := "get"
		if s.mode == "offload" {
			op = "fetch"
		}
		w := p.ask(order{Op: op, Node: 1, Keys: keys, Timeout: timeout / 2})
		if well := note(w, op); w.Wrong != 0 || put && well && w.Hits != len(keys) {
			p.t.Errorf("%s: %d chunks arrive, %d of them wrong: %v", name, w.Hits, w.Wrong, failed)
		}
	}
	// In this order, because a reader renews an offer's leases for as long as the offer is deferred.
	if received {
		closed = note(p.ask(order{Op: "close", Node: 1}), "close the receiver")
	}
	if sent {
		note(p.ask(order{Op: "reclaim"}), "reclaim")
		closed = note(p.ask(order{Op: "close"}), "close the sender") && closed
	}
	return failed, closed
}

// countCalls counts how often each function was called so far.
func (p *process) countCalls() map[string]int {
	p.t.Helper()
	all := map[string]int{}
	for line := range strings.Lines(p.mustDo(order{Op: "control", Argument: "stats"}).Text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if symbol, ok := strings.CutPrefix(name, "calls."); ok {
			all[symbol], _ = strconv.Atoi(value)
		}
	}
	return all
}

// Each call of a start, a transfer and an end fails once: the first, the second and the last of its kind. Every command
// has exactly one outcome, bytes are right or missing, and afterwards everything works. Nothing is left, unless closing
// has reported the rest. A communicator that could not be destroyed is only logged, because none of the node's memory
// stays with it.
func TestEveryCallFailsOnce(t *testing.T) {
	t.Parallel()
	all := []sweep{{"offload", roce, nil}, {"push", roce, nil}, {"push", hccs, older}}
	if testing.Short() {
		all = all[:1] // This sweep makes the most calls.
	}
	for _, s := range all {
		t.Run(fmt.Sprint(s.mode, " ", s.wire), func(t *testing.T) {
			t.Parallel()
			first := newRunDir(t, s.hidden...).startProcess("the nodes")
			if failed, _ := s.playScenario(first, "well", false); len(failed) != 0 {
				t.Fatal(failed)
			}
			calls := first.countCalls()
			first.endProcess()
			if len(calls) < 20 {
				t.Fatalf("only %d functions are called: %v", len(calls), calls)
			}
			const shards = 4
			symbols := slices.Sorted(maps.Keys(calls))
			for shard := range shards {
				t.Run(fmt.Sprint(shard), func(t *testing.T) {
					t.Parallel()
					var p *process
					for i := shard; i < len(symbols); i += shards {
						uses := slices.Compact([]int{1, min(2, calls[symbols[i]]), calls[symbols[i]]})
						if testing.Short() {
							uses = uses[:1]
						}
						for _, nth := range uses {
							p = s.playWithFailure(t, p, symbols[i], nth)
						}
					}
					if p != nil {
						p.endProcess()
					}
				})
			}
		})
	}
}

// playWithFailure plays the scenario while a call fails, and returns the process if it can be used again.
func (s *sweep) playWithFailure(t *testing.T, p *process, symbol string, nth int) *process {
	t.Helper()
	if p == nil {
		p = newRunDir(t, s.hidden...).startProcess("the nodes")
	}
	code, name := 507000, fmt.Sprint(symbol, nth)
	if strings.HasPrefix(symbol, "Hccl") {
		code = 4
	}
	rule := fmt.Sprintf("call:sym=%s,nth=%d,code=%d", symbol, nth, code)
	p.mustDo(order{Op: "control", Argument: "faults " + rule})
	failed, closed := s.playScenario(p, name, true)
	p.mustDo(order{Op: "control", Argument: "clear"})
	left := p.mustDo(order{Op: "control", Argument: "leaks"}).Text
	if left != "" && closed && symbol != "HcclCommDestroy" {
		t.Errorf("%s: left\n%safter %q", rule, left, failed)
	}
	if left != "" {
		p.excused = regionRemoved
		p.Kill()
		return nil
	}
	if failed, _ := s.playScenario(p, "after "+name, false); len(failed) != 0 {
		t.Errorf("after %s: %q", rule, failed)
	}
	return p
}
