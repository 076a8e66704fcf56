package sim

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
)

// What a recorder says of machines that are users' own.

// who names a node in sentences.
func (r *recorder) who(id int32) string {
	if id >= 0 && r.w.nodes[id].own != nil {
		return fmt.Sprintf("%s (%s)", laneName(id), r.w.nodes[id].own.Name)
	}
	return laneName(id)
}

// roleOf is what a node is, beside its number.
func roleOf(n *node) string {
	if n.own != nil {
		return n.own.Name
	}
	return n.facets.String()
}

// groupIn sorts a line: what a user's machine observes is what it is there for.
func (r *recorder) groupIn(e entry) trace.Group {
	if e.kind == kindObserve && e.node >= 0 && r.w.nodes[e.node].own != nil {
		return trace.Engine
	}
	return groupOf(e.kind)
}

// ownMessage describes bytes that only a user's system can read; nil for those of ranks.
func (r *recorder) ownMessage(from int32, b []byte) *described {
	if from < 0 || r.w.nodes[from].own == nil {
		return nil
	}
	return &described{kind: fmt.Sprintf("%d bytes", len(b)), text: bounded(hex.EncodeToString(b))}
}

// wantName is what a command is for, in words.
func (r *recorder) wantName(c *command) string {
	if r.w.nodes[c.node].own != nil {
		return r.w.item(c).Do
	}
	return c.want.String()
}

// ownWords says what a line of a user's node means, where that is not said of ranks; "" where it is.
func (r *recorder) ownWords(p *noted) string {
	if p.node < 0 || r.w.nodes[p.node].own == nil {
		return ""
	}
	who, w := r.who(p.node), r.w
	switch p.kind {
	case kindCommand:
		x := w.item(&w.commands[p.a-1])
		text := x.Do
		if x.Span > 0 {
			text += fmt.Sprintf(", %v", time.Duration(x.Span))
		}
		if x.Number > 0 {
			text += fmt.Sprintf(", %d", x.Number)
		}
		return fmt.Sprintf("the engine of %s gives the command %s (ticket %d)", who, text, p.a)
	case kindDeliver:
		return fmt.Sprintf("%s ends %s (ticket %d): %s", who, w.item(&w.commands[p.a-1]).Do, p.a, effects.Code(p.b))
	case kindObserve:
		return fmt.Sprintf("%s says: %s, %d", who, w.nodes[p.node].own.system.fact(effects.Fact(p.a)), p.c)
	}
	return ""
}

// fact is a fact's name.
func (s *System) fact(f effects.Fact) string {
	if i := int(f) - effects.FactOther; i >= 0 && i < len(s.Facts) {
		return s.Facts[i]
	}
	return f.String()
}
