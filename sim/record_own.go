package sim

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// What a recorder says of machines that are users' own.

// who names a node in sentences.
func (r *recorder) who(id int32) string {
	if id >= 0 && r.w.Nodes[id].User {
		return fmt.Sprintf("%s (%s)", world.LaneName(id), user(r.w.Nodes[id]).Name)
	}
	return world.LaneName(id)
}

// roleOf is what a node is, beside its number.
func roleOf(n *world.Node) string {
	if n.User {
		return user(n).Name
	}
	return n.Facets.String()
}

// groupIn sorts a line: what a user's machine observes is what it is there for.
func (r *recorder) groupIn(e world.Entry) trace.Group {
	if e.Kind == world.KindObserve && e.Node >= 0 && r.w.Nodes[e.Node].User {
		return trace.Engine
	}
	return groupOf(e.Kind)
}

// ownMessage describes bytes that only a user's system can read; nil for those of ranks.
func (r *recorder) ownMessage(from int32, b []byte) *described {
	if from < 0 || !r.w.Nodes[from].User {
		return nil
	}
	return &described{kind: fmt.Sprintf("%d bytes", len(b)), text: bounded(hex.EncodeToString(b))}
}

// wantName is what a command is for, in words.
func (r *recorder) wantName(c *pd.Command) string {
	if r.w.Nodes[c.Node].User {
		return r.w.item(c).Do
	}
	return c.Want.String()
}

// ownWords says what a line of a user's node means, where that is not said of ranks; "" where it is.
func (r *recorder) ownWords(p *noted) string {
	if p.Node < 0 || !r.w.Nodes[p.Node].User {
		return ""
	}
	who, w := r.who(p.Node), r.w
	switch p.Kind {
	case world.KindCommand:
		x := w.item(&w.Commands[p.A-1])
		text := x.Do
		if x.Span > 0 {
			text += fmt.Sprintf(", %v", time.Duration(x.Span))
		}
		if x.Number > 0 {
			text += fmt.Sprintf(", %d", x.Number)
		}
		return fmt.Sprintf("the engine of %s gives the command %s (ticket %d)", who, text, p.A)
	case world.KindDeliver:
		return fmt.Sprintf("%s ends %s (ticket %d): %s", who, w.item(&w.Commands[p.A-1]).Do, p.A, effects.Code(p.B))
	case world.KindObserve:
		return fmt.Sprintf("%s says: %s, %d", who, user(w.Nodes[p.Node]).system.fact(effects.Fact(p.A)), p.C)
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
