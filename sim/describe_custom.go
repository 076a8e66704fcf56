package sim

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/world"
)

// The descriptions of users' machines in stories.

// NodeLabel returns the name of a node for sentences.
func (w *trial) NodeLabel(id int32) string {
	if id >= 0 && w.Nodes[id].Custom {
		return fmt.Sprintf("%s (%s)", world.NodeName(id), customOf(w.Nodes[id]).Name)
	}
	return world.NodeName(id)
}

// RoleName returns the role of a node, shown beside its number.
func (w *trial) RoleName(n *world.Node) string {
	if n.Custom {
		return customOf(n).Name
	}
	return n.Roles.String()
}

// DescribeMessage describes a message. Only a user's system can interpret its messages, so the bytes are shown as
// hexadecimal text.
func (w *trial) DescribeMessage(from int32, b []byte) story.Message {
	if from < 0 || !w.Nodes[from].Custom {
		return w.Cluster.DescribeMessage(from, b)
	}
	return story.Message{Kind: shortText(b), Text: hex.EncodeToString(b)}
}

// shortText shows the beginning of a message of a user's system: as text if all bytes are text, otherwise in
// hexadecimal.
func shortText(b []byte) string {
	const textMax, hexMax = 32, 12
	isText := len(b) > 0 && utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
	switch {
	case len(b) == 0:
		return "an empty message"
	case isText && len(b) <= textMax:
		return strconv.Quote(string(b))
	case isText:
		return strconv.Quote(strings.ToValidUTF8(string(b[:textMax]), "")) + fmt.Sprintf("... (%d bytes)", len(b))
	case len(b) <= hexMax:
		return fmt.Sprintf("%x", b)
	}
	return fmt.Sprintf("%x... (%d bytes)", b[:hexMax], len(b))
}

// DescribeCommand describes the command of a ticket.
func (w *trial) DescribeCommand(t effects.Ticket) story.Command {
	c := &w.Commands[t-1]
	if !w.Nodes[c.Node].Custom {
		return w.Cluster.DescribeCommand(t)
	}
	return story.Command{Kind: w.itemOf(c).Do, Node: c.Node, Held: c.HoldsMemory, Target: c.Target, Pages: c.Pages}
}

// VisitLeftovers visits the counts that must be zero at rest.
func (w *trial) VisitLeftovers(n *world.Node, visit func(what string, count int)) {
	if !n.Custom {
		w.Cluster.VisitLeftovers(n, visit)
	} else if t, ok := n.Machine.(tableVisitor); ok && n.Up {
		t.VisitTables(func(name string, k, _ int) { visit(name, k) })
	}
}

// ExplainLine returns the meaning of a log line about a user's node if the line has a different meaning for ranks, and
// otherwise "".
func (w *trial) ExplainLine(e world.Entry) string {
	if e.Node < 0 || !w.Nodes[e.Node].Custom {
		return ""
	}
	label := w.NodeLabel(e.Node)
	switch e.Kind {
	case world.KindCommand:
		x := w.itemOf(&w.Commands[e.A-1])
		text := x.Do
		if x.Span > 0 {
			text += fmt.Sprintf(", %v", time.Duration(x.Span))
		}
		if x.Number > 0 {
			text += fmt.Sprintf(", %d", x.Number)
		}
		return fmt.Sprintf("the engine of %s issues the command %s (ticket %d)", label, text, e.A)
	case world.KindDeliver:
		return fmt.Sprintf("%s completes %s (ticket %d): %s", label, w.itemOf(&w.Commands[e.A-1]).Do, e.A, effects.Code(e.B))
	case world.KindObserve:
		return fmt.Sprintf("%s reports: %s, %d", label, customOf(w.Nodes[e.Node]).system.factName(effects.Fact(e.A)), e.C)
	}
	return ""
}

// factName returns the name of a fact in the event log when the given node reports it.
func (w *trial) factName(node int32, f effects.Fact) string {
	if n := w.Nodes[node]; n.Custom {
		return customOf(n).system.factName(f)
	}
	return f.String()
}

// factName returns the system's name of a fact.
func (s *System) factName(f effects.Fact) string {
	if i := int(f) - effects.FactOther; i >= 0 && i < len(s.FactNames) {
		return s.FactNames[i]
	}
	return f.String()
}
