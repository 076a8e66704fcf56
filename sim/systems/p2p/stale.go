package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A rank caches the reply of a directory and uses it again for the same query. After a peer has proved to have fewer
// chunks than the reply said, the rank must not use the cached reply for the next query, and must ask a directory.

// heard records the replies that the nodes received from directories in their current incarnations, and the commands
// that caused the queries.
type heard struct {
	asked   []query
	answers []answer
	seeks   []seek
}

// query is a lookup that was sent to a directory.
type query struct {
	node int32
	corr effects.Corr
	of   uint64 // hash that identifies the queried chunks
}

// answer is the last reply that a node received for a query.
type answer struct {
	node  int32
	of    uint64
	least uint32       // fewest chunks that a replied location was said to have
	said  uint64       // set of the replied chunk counts, a bit per count
	stale effects.Time // the time since which the node knows that the reply is wrong; 0 if not known
}

// seek is a command that makes the rank query the directories.
type seek struct {
	node    int32
	ticket  effects.Ticket
	of      uint64
	from    uint32 // leading chunks that the node already had
	at      effects.Time
	refuted bool // a peer has reported that a chunk is missing
}

// forgets checks that a rank does not use a cached reply again that a peer has shown to be wrong.
var forgets = oracle.Of("forgets", "what directories said and a peer has shown to be wrong is not believed again: a "+
	"directory is asked anew", func(l *oracle.Listen[heard]) {
	hears(l)
	oracle.On(l, func(h *heard, call *oracle.Call, e *effects.Observe) {
		if e.Fact != effects.FactBrought {
			return
		}
		if s := h.seek(int32(call.Node()), effects.Ticket(e.ID)); s != nil {
			s.refuted = s.refuted || e.Code == effects.NotFound
			h.believes(call, s)
		}
	})
	oracle.On(l, func(h *heard, call *oracle.Call, e *effects.Deliver) {
		s := h.seek(int32(call.Node()), e.Ticket)
		if s == nil {
			return
		}
		if a := h.answer(s.node, s.of); a != nil && s.refuted && e.Hits < s.from+a.least {
			a.stale = call.Now()
		} else if e.Code == effects.OK && pd.In(call).Commands[e.Ticket-1].Want == locate {
			h.believes(call, s)
		}
		h.over(s)
	})
})

// hears records the queries and the replies.
func hears(l *oracle.Listen[heard]) {
	oracle.On(l, func(h *heard, call *oracle.Call, e *effects.Command) {
		w := pd.In(call)
		n := w.Nodes[call.Node()]
		if c := w.CommandOf(n, e.Ticket); !n.User && c != nil && looks(w, c) {
			s := seek{node: n.ID, ticket: e.Ticket, at: call.Now()}
			keys := w.Jobs[c.Job].Keys
			if c.Want == want {
				s.from = here(n, keys)
			}
			s.of = question(hashesOf(keys[s.from:], pd.Its(n).Cfg.Directory.PrefixMax))
			h.seeks = append(h.seeks, s)
		}
	})
	oracle.On(l, func(h *heard, call *oracle.Call, e *effects.Send) {
		m := protocol.BatchedP2PLookupMsg{}
		c := pd.In(call).ConnOf(uint64(e.Conn))
		if c != nil && c.Channel == effects.ChannelDirectory && m.Decode(e.Body, nil) == nil {
			h.asked = append(h.asked, query{int32(call.Node()), e.Corr, question(m.Hashes)})
		}
	})
	oracle.On(l, func(h *heard, call *oracle.Call, e *effects.Replied) { h.replied(int32(call.Node()), e) })
	oracle.On(l, func(h *heard, call *oracle.Call, _ oracle.Down) {
		h.asked = slices.DeleteFunc(h.asked, func(x query) bool { return x.node == int32(call.Node()) })
		h.answers = slices.DeleteFunc(h.answers, func(x answer) bool { return x.node == int32(call.Node()) })
		h.seeks = slices.DeleteFunc(h.seeks, func(x seek) bool { return x.node == int32(call.Node()) })
	})
}

// replied records the reply of a directory.
func (h *heard) replied(node int32, e *effects.Replied) {
	i := slices.IndexFunc(h.asked, func(q query) bool { return q.node == node && q.corr == e.Corr })
	if i < 0 {
		return
	}
	of, m := h.asked[i].of, protocol.BatchedP2PLookupRetMsg{}
	if h.asked = slices.Delete(h.asked, i, i+1); m.Decode(e.Body, nil) != nil {
		return
	}
	a := h.answer(node, of)
	if a == nil {
		h.answers = append(h.answers, answer{node: node, of: of, least: ^uint32(0)})
		a = &h.answers[len(h.answers)-1]
	}
	a.stale = 0
	most := uint32(0)
	for i := range m.Holders {
		if x := &m.Holders[i]; string(x.InstanceID) != world.LaneName(node) {
			a.least, most = min(a.least, x.HitChunks), max(most, x.HitChunks)
		}
	}
	a.said |= 1 << min(most, 63)
}

// believes checks that a command does not rely on a reply that was known to be wrong when the command was given.
func (h *heard) believes(call *oracle.Call, s *seek) {
	if a := h.answer(s.node, s.of); a != nil && a.stale != 0 && a.stale < s.at {
		call.Fail("node %d goes by what directories said for ticket %d, and has been told %d ns before it that this is wrong",
			oracle.Node(s.node), oracle.Ticket(s.ticket), s.at-a.stale)
	}
}

// answer returns the last reply to a query, or nil.
func (h *heard) answer(node int32, of uint64) *answer {
	if i := slices.IndexFunc(h.answers, func(a answer) bool { return a.node == node && a.of == of }); i >= 0 {
		return &h.answers[i]
	}
	return nil
}

// seek returns the pending command of a ticket, or nil.
func (h *heard) seek(node int32, t effects.Ticket) *seek {
	if i := slices.IndexFunc(h.seeks, func(s seek) bool { return s.node == node && s.ticket == t }); i >= 0 {
		return &h.seeks[i]
	}
	return nil
}

// over removes a command that has its outcome.
func (h *heard) over(s *seek) {
	h.seeks = slices.DeleteFunc(h.seeks, func(x seek) bool { return x.node == s.node && x.ticket == s.ticket })
}

// looks reports whether the rank queries the directories for a command, about the chunks that the node does not have.
// Chunks that are kept for the request need no query.
func looks(w *pd.Cluster, c *pd.Command) bool {
	j := &w.Jobs[c.Job]
	again := j.Given[want] > 1 && mode(w.Nodes[c.Node], j) == ops.Delayed
	return c.Want == locate || c.Want == want && j.Said[finding] && !again
}

// here returns how many leading chunks of keys a node has.
func here(n *world.Node, keys [][]byte) (count uint32) {
	for _, key := range keys {
		if _, ok := pd.ReadyAt(n, key); !ok {
			break
		}
		count++
	}
	return count
}

// hashesOf returns the hashes by which directories are queried, for at most the given number of leading keys.
func hashesOf(keys [][]byte, most int) (all []protocol.ChunkHash) {
	for _, key := range keys[:min(len(keys), most)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break
		}
		all = append(all, hash)
	}
	return all
}

// question returns a hash that identifies a query.
func question(hashes []protocol.ChunkHash) uint64 {
	sum := uint64(len(hashes))
	for _, h := range hashes {
		sum = (sum ^ h.Bits) * 0x9E3779B97F4A7C15
		sum ^= sum >> 29
	}
	return sum
}
