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
// msgpack allows. Each incarnation of a node in Topology.Foreign has a separate encoder, and FaultForeignEncoding makes
// single messages of any sender use different forms. The forms have no meaning, so no machine may behave differently
// because of the forms: a run with rewritten messages is repeated without rewriting, and both runs must be equal except
// for these bytes (S26).

// A authorKind is the kind of node that writes a message. Messages of foreign encoders are counted by scribe.
type authorKind int

// The kinds of nodes that write messages.
const (
	authorSender authorKind = iota
	authorReceiver
	authorPlain
	authorKinds
)

// authorNames contains the names of the scribes in the coverage.
var authorNames = [authorKinds]string{"sender", "receiver", "vanilla"}

// foreignPoint returns the coverage point that counts messages with the tag t that the scribe s wrote in different
// forms.
func foreignPoint(s authorKind, t protocol.Tag) coverage.Point {
	return pointForeign + coverage.Point(s)*tagsMax + coverage.Point(t)
}

// messageEncoder rewrites messages: the meaning stays the same, and the bytes differ.
type messageEncoder struct {
	rewritten []byte // the newest message that was rewritten
	offer     protocol.PullReadyNotif
	roamed    []byte // the newest offer that names the sender's other address
}

// encodeMessage returns a message in the encoding of node n. If the node has our encoder, a fault may still rewrite
// this message. The number nth identifies the message among the messages of the same subject. The returned bytes are
// valid until the next message.
func (x *messageEncoder) encodeMessage(w *Cluster, n *world.Node, subject plan.Subject, nth uint64, body []byte) []byte {
	if n.Custom {
		return body
	}
	s := authorReceiver
	if n.IsSender() {
		s = authorSender
	}
	if !slices.Contains(w.SourcePlan.Topology.Foreign, plan.Node(n.ID)) {
		return x.maybeRewrite(w, s, subject, nth, body)
	}
	style := draw.Hash(w.Seed, draw.Encoder, uint64(n.Subject()), 0)
	return x.rewriteInForms(w, s, drawForms(style), mixDraw(style, subject, nth), body)
}

// maybeRewrite returns a message of a sender with our encoder, rewritten if FaultForeignEncoding strikes the message.
func (x *messageEncoder) maybeRewrite(w *Cluster, s authorKind, subject plan.Subject, nth uint64, body []byte) []byte {
	d, ok := w.DrawStrike(plan.FaultForeignEncoding, subject, nth)
	if !ok {
		return body
	}
	return x.rewriteInForms(w, s, drawForms(d), d.Rehash().Rehash(), body)
}

// drawForms draws the forms in which an encoder differs from ours.
func drawForms(d draw.Value) foreign.Forms { return 1 + foreign.Forms(d.Below(uint64(foreign.All))) }

// mixDraw combines a draw with the subject and the number of a message.
func mixDraw(d draw.Value, subject plan.Subject, nth uint64) draw.Value {
	return draw.Value(draw.Mix(draw.Mix(uint64(d), uint64(subject)), nth))
}

// rewriteInForms rewrites a message in the given forms. An empty frame, which is a refusal, stays empty, and so does
// any message without a readable tag.
func (x *messageEncoder) rewriteInForms(w *Cluster, s authorKind, forms foreign.Forms, d draw.Value, body []byte) []byte {
	tag, err := protocol.PeekTag(body, &WireLimits)
	if err != nil {
		return body
	}
	b, ok := foreign.Append(x.rewritten[:0], body, forms, drawChoices(d))
	if !ok {
		return body
	}
	x.rewritten = b
	w.Result.Coverage.Hit(foreignPoint(s, tag))
	return b
}

// corruptOrEncode returns the bytes of a message of n that arrive: either written by n's encoder, or corrupted. A
// corrupted message is not rewritten.
func (x *messageEncoder) corruptOrEncode(w *Cluster, n *world.Node, f plan.Fault, c *world.Conn, direction, nth uint64,
	body []byte) []byte {
	b := w.CorruptMessage(f, c, nth, body)
	if len(b) != len(body) || len(b) > 0 && &b[0] != &body[0] {
		return b
	}
	return x.encodeMessage(w, n, c.Name, 2*nth+direction, body)
}

// encodeRequest returns the bytes of a request of n that arrive. Sometimes a field occurs twice in the request
// (FaultFieldRepeated).
func (x *messageEncoder) encodeRequest(w *Cluster, n *world.Node, c *world.Conn, body []byte) []byte {
	if n.Custom {
		return w.CorruptMessage(plan.FaultRequestCorrupted, c, c.SentCount, body)
	}
	body = x.nameOtherAddress(w, n, body)
	for _, f := range w.Flows {
		if f.RewriteRequest != nil {
			body = f.RewriteRequest(w, n, body)
		}
	}
	if d, ok := w.DrawStrike(plan.FaultFieldRepeated, c.Name, c.SentCount); ok {
		if b, _, ok := foreign.Repeat(x.rewritten[:0], body, 0, drawChoices(d)); ok {
			x.rewritten, c.Requests[len(c.Requests)-1].RepeatsField = b, true
			return b
		}
	}
	return x.corruptOrEncode(w, n, plan.FaultRequestCorrupted, c, world.ToServer, c.SentCount, body)
}

// drawChoices returns a function that draws one choice after another from d.
func drawChoices(d draw.Value) foreign.Draw {
	return func(n int) int {
		d = d.Rehash()
		return int(d.Below(uint64(n)))
	}
}
