package rank

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"pgregory.net/rapid"
)

// A prefill that pushes layer by layer, or its decode, lies in its messages: of layers, chunks, pages, epochs and what
// was sent already. Whichever lies, pages are conserved at each step (S5), and when the lies have ceased and time has
// passed no page is held at either end, and no command is without its outcome (S17, L1).
func TestLiesAboutLayers(t *testing.T) {
	rapid.Check(t, func(t2 *rapid.T) {
		r := &rig{t: t, quiet: true, now: effects.Time(effects.Second)}
		common := Common{ReplyTimeout: effects.Second, AllocTimeout: effects.Second / 2, Lease: 3 * effects.Second}
		peers := Peers{UnfitBackoff: 2 * effects.Second}
		layers, bundles := uint32(2), rapid.Uint32Range(0, 6).Draw(t2, "bundles")
		r.add(Config{Common: common, Peers: peers, Memory: Memory{Pages: 8}, Role: RoleSender,
			Bundling: Bundling{Layers: layers, BundlesMax: bundles}}, "s")
		r.add(Config{Common: common, Peers: peers, Memory: Memory{Pages: 8}, Role: RoleReceiver,
			Bundling: Bundling{Layers: layers, BundlesMax: bundles}}, "r")
		x := &layeredRound{rig: r, t: t2, s: r.node("s"), r: r.node("r")}
		x.runCommand(x.s, &engine.Reserve{Count: 8})
		x.playRequest(0) // Both are honest while they shake hands.
		for x.deliverNext() {
		}
		liar := r.nodes[rapid.IntRange(0, 1).Draw(t2, "liar")]
		r.rewriteMessage = func(n *node, body []byte) []byte {
			if n != liar {
				return body
			}
			return maybeChange(t2, body)
		}
		for i := range rapid.IntRange(1, 8).Draw(t2, "requests") {
			x.playRequest(i + 1)
		}
		r.rewriteMessage = nil
		x.finishRound()
	})
}

// A layeredRound plays engines at both ends of a push by layers.
type layeredRound struct {
	*rig
	t      *rapid.T
	s, r   *node
	ticket effects.Ticket
	gets   []effects.Ticket
	runs   []layerwise.Drop // one for each request that began
}

func (x *layeredRound) runCommand(n *node, body effects.CommandBody) effects.Ticket {
	x.ticket++
	x.step(n, &effects.Command{Ticket: x.ticket, Body: body})
	return x.ticket
}

// playRequest plays one: its layers in order, or not all of them, and a get before or after.
func (x *layeredRound) playRequest(number int) {
	name := fmt.Sprintf("r%d", number)
	names := keys([]string{fmt.Sprintf("%xa", number+1), fmt.Sprintf("%xb", number+1)})
	early := rapid.Bool().Draw(x.t, "the decode is early")
	get := func() {
		x.gets = append(x.gets, x.runCommand(x.r, &engine.Get{Request: []byte(name), Keys: names, Wait: effects.Second,
			Layered: true}))
	}
	if early {
		get()
	}
	run := x.runCommand(x.s, &layerwise.Begin{Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte(name)})
	x.runs = append(x.runs, layerwise.Drop{Request: []byte(name), Run: run})
	saved := uint32(0)
	for layer := range x.s.cfg.Layers {
		if rapid.IntRange(0, 5).Draw(x.t, "goes on") == 0 {
			break
		}
		saved++
		x.runCommand(x.s, &layerwise.Save{Request: []byte(name), Run: run, Layer: layer, Tokens: 8, Keys: names,
			Pages: x.s.pages(int(2*layer), len(names), 32)})
		x.deliverSome()
	}
	switch by := rapid.IntRange(0, 3).Draw(x.t, "ends by"); {
	case by == 0 || saved < x.s.cfg.Layers: // A request that is not whole cannot be finished.
		x.runCommand(x.s, &layerwise.Drop{Request: []byte(name), Run: run})
	case by == 1:
		x.runCommand(x.s, &layerwise.Preempt{Request: []byte(name), Run: run})
		x.runCommand(x.s, &layerwise.Drop{Request: []byte(name), Run: run})
	default:
		x.runCommand(x.s, &layerwise.Finish{Request: []byte(name), Run: run, Tokens: 8, Timeout: 2 * effects.Second})
	}
	if !early {
		get()
	}
	x.deliverSome()
}

// deliverSome lets a few things happen, and sometimes time pass.
func (x *layeredRound) deliverSome() {
	for range rapid.IntRange(0, 12).Draw(x.t, "things") {
		if !x.deliverNext() {
			break
		}
	}
	if rapid.IntRange(0, 3).Draw(x.t, "time passes") == 0 {
		x.advance(effects.Duration(rapid.IntRange(1, 1500).Draw(x.t, "ms")) * effects.Millisecond)
	}
}

// finishRound lets all that is under way end, time pass, and engines give back what they have; then nothing is left.
func (x *layeredRound) finishRound() {
	settle := func() {
		for range 400 {
			for n := 0; x.deliverNext(); n++ {
				if n > 5000 {
					x.t.Fatal("never at rest")
				}
			}
			x.advance(effects.Second)
		}
	}
	settle()
	for i := range x.runs { // What was not finished, because a save of it was refused, goes on until its engine ends it.
		x.runCommand(x.s, &x.runs[i])
	}
	for _, t := range x.gets {
		x.runCommand(x.r, &engine.Unpin{Got: t})
	}
	x.runCommand(x.s, &engine.Release{Reserved: 1})
	settle()
	for _, n := range []*node{x.s, x.r} {
		if st := n.rank.Stats(); st.PagesFree != st.PagesTotal || st.Puts+st.Gets+st.PendingRequests+st.Grants+st.Layers+
			st.Bundles+st.Reserves+st.Outstanding > 0 {
			x.t.Fatalf("%s: something is left: %+v", n.name, st)
		}
	}
}
