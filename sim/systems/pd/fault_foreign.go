package pd

import (
	"slices"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/foreign"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A peer's encoder may differ from ours: the peer writes the same messages in different bytes, in any of the forms that
// msgpack allows. Each incarnation of a node in Topology.Foreign has a separate encoder, and FaultForeign makes single
// messages of any sender use different forms. The forms have no meaning, so no machine may behave differently because
// of the forms: a run with rewritten messages is repeated without rewriting, and both runs must be equal except for
// these bytes (S26).

// A scribe is the kind of node that writes a message. Messages of foreign encoders are counted by scribe.
type scribe int

// The kinds of nodes that write messages.
const (
	scribeSends scribe = iota
	scribeReceives
	scribePlain
	scribes
)

// scribeNames contains the names of the scribes in the coverage.
var scribeNames = [scribes]string{"sender", "receiver", "vanilla"}

// foreignPoint returns the coverage point that counts messages with the tag t that the scribe s wrote in different
// forms.
func foreignPoint(s scribe, t protocol.Tag) coverage.Point {
	return pointForeign + coverage.Point(s)*tagsMax + coverage.Point(t)
}

// encoders rewrites messages: the meaning stays the same, and the bytes differ.
type encoders struct {
	rewritten []byte // the newest message that was rewritten
}

// written returns a message in the encoding of node n. If the node has our encoder, a fault may still rewrite this
// message. The number nth identifies the message among the messages of the same subject. The returned bytes are valid
// until the next message.
func (x *encoders) written(w *Cluster, n *world.Node, about plan.Subject, nth uint64, body []byte) []byte {
	if n.User {
		return body
	}
	s := scribeReceives
	if n.Sends() {
		s = scribeSends
	}
	if !slices.Contains(w.Source.Topology.Foreign, plan.Node(n.ID)) {
		return x.once(w, s, about, nth, body)
	}
	style := draw.Hash(w.Seed, draw.Encoder, uint64(n.Subject()), 0)
	return x.inForms(w, s, formsOf(style), mixed(style, about, nth), body)
}

// once returns a message of a sender with our encoder, rewritten if FaultForeign strikes the message.
func (x *encoders) once(w *Cluster, s scribe, about plan.Subject, nth uint64, body []byte) []byte {
	d, yes := w.Strikes(plan.FaultForeign, about, nth)
	if !yes {
		return body
	}
	return x.inForms(w, s, formsOf(d), d.Again().Again(), body)
}

// formsOf draws the forms in which an encoder differs from ours.
func formsOf(d draw.Of) foreign.Forms { return 1 + foreign.Forms(d.Below(uint64(foreign.All))) }

// mixed combines a draw with the subject and the number of a message.
func mixed(d draw.Of, about plan.Subject, nth uint64) draw.Of {
	return draw.Of(draw.Mix(draw.Mix(uint64(d), uint64(about)), nth))
}

// inForms rewrites a message in the given forms. An empty frame, which is a refusal, stays empty, and so does any
// message without a readable tag.
func (x *encoders) inForms(w *Cluster, s scribe, forms foreign.Forms, d draw.Of, body []byte) []byte {
	tag, err := protocol.PeekTag(body, &WireLimits)
	if err != nil {
		return body
	}
	b, ok := foreign.Append(x.rewritten[:0], body, forms, choices(d))
	if !ok {
		return body
	}
	x.rewritten = b
	w.Result.Coverage.Hit(foreignPoint(s, tag))
	return b
}

// onItsWay returns the bytes of a message of n that arrive: either written by n's encoder, or corrupted. A corrupted
// message is not rewritten.
func (x *encoders) onItsWay(w *Cluster, n *world.Node, f plan.Fault, c *world.Conn, direction, nth uint64,
	body []byte) []byte {
	b := w.Corrupt(f, c, nth, body)
	if len(b) != len(body) || len(b) > 0 && &b[0] != &body[0] {
		return b
	}
	return x.written(w, n, c.Name, 2*nth+direction, body)
}

// request returns the bytes of a request of n that arrive. Sometimes a field occurs twice in the request
// (FaultRepeated).
func (x *encoders) request(w *Cluster, n *world.Node, c *world.Conn, body []byte) []byte {
	if n.User {
		return w.Corrupt(plan.FaultCorruptRequest, c, c.Sent, body)
	}
	if d, yes := w.Strikes(plan.FaultRepeated, c.Name, c.Sent); yes {
		if b, _, ok := foreign.Repeat(x.rewritten[:0], body, 0, choices(d)); ok {
			x.rewritten, c.Asked[len(c.Asked)-1].Repeats = b, true
			return b
		}
	}
	return x.onItsWay(w, n, plan.FaultCorruptRequest, c, world.ToServer, c.Sent, body)
}

// choices returns a function that draws one choice after another from d.
func choices(d draw.Of) foreign.Draw {
	return func(n int) int {
		d = d.Again()
		return int(d.Below(uint64(n)))
	}
}
