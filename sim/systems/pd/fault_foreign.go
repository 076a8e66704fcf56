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

// A peer's encoder may not be ours: it writes the same messages in other bytes, in any of the ways that msgpack allows.
// A node of Topology.Foreign has an encoder of its own in each life, and single messages of anybody are written
// otherwise by FaultForeign. Whatever an encoder chooses means nothing, so no machine does anything else for it: a run
// that has such messages is run once more without them, and the two must be the same but for those bytes (S26).

// A scribe is who writes a message: what is counted of foreign encoders is counted by that.
type scribe int

const (
	scribeSends scribe = iota
	scribeReceives
	scribePlain
	scribes
)

var scribeNames = [scribes]string{"sender", "receiver", "vanilla"}

// foreignPoint is where messages in other forms are counted.
func foreignPoint(s scribe, t protocol.Tag) coverage.Point {
	return pointForeign + coverage.Point(s)*tagsMax + coverage.Point(t)
}

// encoders write messages in other bytes.
type encoders struct {
	rewritten []byte // the newest message in other forms
}

// written is a message as its node's encoder writes it, unless that is struck in this one. Nth names the message among
// those of the subject. The bytes are borrowed until the next message.
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

// once is a message of who mostly writes as we do.
func (x *encoders) once(w *Cluster, s scribe, about plan.Subject, nth uint64, body []byte) []byte {
	d, yes := w.Strikes(plan.FaultForeign, about, nth)
	if !yes {
		return body
	}
	return x.inForms(w, s, formsOf(d), d.Again().Again(), body)
}

// formsOf draws in what an encoder differs from ours.
func formsOf(d draw.Of) foreign.Forms { return 1 + foreign.Forms(d.Below(uint64(foreign.All))) }

func mixed(d draw.Of, about plan.Subject, nth uint64) draw.Of {
	return draw.Of(draw.Mix(draw.Mix(uint64(d), uint64(about)), nth))
}

// inForms writes a message otherwise. An empty frame, which refuses, stays what it is.
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

// onItsWay is a message of n as it arrives: written by n's encoder, or corrupted, and then not written anew.
func (x *encoders) onItsWay(w *Cluster, n *world.Node, f plan.Fault, c *world.Conn, direction, nth uint64,
	body []byte) []byte {
	b := w.Corrupt(f, c, nth, body)
	if len(b) != len(body) || len(b) > 0 && &b[0] != &body[0] {
		return b
	}
	return x.written(w, n, c.Name, 2*nth+direction, body)
}

// request is a message of n that is to be answered, as it arrives: sometimes with a field that is given twice.
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

// choices are drawn one after the other.
func choices(d draw.Of) foreign.Draw {
	return func(n int) int {
		d = d.Again()
		return int(d.Below(uint64(n)))
	}
}
