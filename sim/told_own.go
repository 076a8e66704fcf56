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

// Who returns the name of a node for sentences.
func (w *trial) Who(id int32) string {
	if id >= 0 && w.Nodes[id].User {
		return fmt.Sprintf("%s (%s)", world.LaneName(id), user(w.Nodes[id]).Name)
	}
	return world.LaneName(id)
}

// Role returns the role of a node, shown beside its number.
func (w *trial) Role(n *world.Node) string {
	if n.User {
		return user(n).Name
	}
	return n.Facets.String()
}

// Message describes a message. Only a user's system can interpret its messages, so the bytes are shown as hexadecimal
// text.
func (w *trial) Message(from int32, b []byte) story.Message {
	if from < 0 || !w.Nodes[from].User {
		return w.Cluster.Message(from, b)
	}
	return story.Message{Kind: inShort(b), Text: hex.EncodeToString(b)}
}

// inShort shows the beginning of a message of a user's system: as text if all bytes are text, otherwise in hexadecimal.
func inShort(b []byte) string {
	const textMost, hexMost = 32, 12
	isText := len(b) > 0 && utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) })
	switch {
	case len(b) == 0:
		return "an empty message"
	case isText && len(b) <= textMost:
		return strconv.Quote(string(b))
	case isText:
		return strconv.Quote(strings.ToValidUTF8(string(b[:textMost]), "")) + fmt.Sprintf("... (%d bytes)", len(b))
	case len(b) <= hexMost:
		return fmt.Sprintf("%x", b)
	}
	return fmt.Sprintf("%x... (%d bytes)", b[:hexMost], len(b))
}

// Command describes the command of a ticket.
func (w *trial) Command(t effects.Ticket) story.Command {
	c := &w.Commands[t-1]
	if !w.Nodes[c.Node].User {
		return w.Cluster.Command(t)
	}
	return story.Command{Want: w.item(c).Do, Node: c.Node, Held: c.Held, Target: c.Target, Pages: c.Pages}
}

// Held visits the counts that must be zero at rest.
func (w *trial) Held(n *world.Node, visit func(what string, count int)) {
	if !n.User {
		w.Cluster.Held(n, visit)
	} else if t, ok := n.Machine.(tabled); ok && n.Up {
		t.Tables(func(name string, k, _ int) { visit(name, k) })
	}
}

// ExplainLine returns the meaning of a log line about a user's node if the line has a different meaning for ranks, and
// otherwise "".
func (w *trial) Words(e world.Entry) string {
	if e.Node < 0 || !w.Nodes[e.Node].User {
		return ""
	}
	who := w.Who(e.Node)
	switch e.Kind {
	case world.KindCommand:
		x := w.item(&w.Commands[e.A-1])
		text := x.Do
		if x.Span > 0 {
			text += fmt.Sprintf(", %v", time.Duration(x.Span))
		}
		if x.Number > 0 {
			text += fmt.Sprintf(", %d", x.Number)
		}
		return fmt.Sprintf("the engine of %s issues the command %s (ticket %d)", who, text, e.A)
	case world.KindDeliver:
		return fmt.Sprintf("%s completes %s (ticket %d): %s", who, w.item(&w.Commands[e.A-1]).Do, e.A, effects.Code(e.B))
	case world.KindObserve:
		return fmt.Sprintf("%s says: %s, %d", who, user(w.Nodes[e.Node]).system.fact(effects.Fact(e.A)), e.C)
	}
	return ""
}

// factName returns the name of a fact in the event log when the given node reports it.
func (w *trial) factName(node int32, f effects.Fact) string {
	if n := w.Nodes[node]; n.User {
		return user(n).system.fact(f)
	}
	return f.String()
}

// fact returns the system's name of a fact.
func (s *System) fact(f effects.Fact) string {
	if i := int(f) - effects.FactOther; i >= 0 && i < len(s.Facts) {
		return s.Facts[i]
	}
	return f.String()
}
