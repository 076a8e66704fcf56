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

// directoryReplies records the replies that the nodes received from directories in their current incarnations, and the
// commands that caused the queries.
type directoryReplies struct {
	queries  []query
	replies  []cachedReply
	searches []search
}

// query is a lookup that was sent to a directory.
type query struct {
	node int32
	corr effects.Corr
	hash uint64 // hash that identifies the queried chunks
}

// cachedReply is the last reply that a node received for a query.
type cachedReply struct {
	node       int32
	hash       uint64
	minChunks  uint32       // fewest chunks that a replied location was said to have
	countBits  uint64       // set of the replied chunk counts, a bit per count
	wrongSince effects.Time // the time since which the node knows that the reply is wrong; 0 if not known
}

// search is a command that makes the rank query the directories.
type search struct {
	node        int32
	ticket      effects.Ticket
	hash        uint64
	localChunks uint32 // leading chunks that the node already had
	givenAt     effects.Time
	refuted     bool // a peer has reported that a chunk is missing
}

var checkStaleReply = oracle.NewCheck("sought:", "stale replies")

// staleReplyOracle checks that a rank does not use a cached reply again that a peer has shown to be wrong.
var staleReplyOracle = oracle.New("stale replies", "a reply of a directory that a peer has shown to be wrong is not used again: a "+
	"directory is asked again", func(l *oracle.Subscriptions[directoryReplies]) {
	followQueries(l)
	oracle.On(l, func(h *directoryReplies, call *oracle.Call, e *effects.Observe) {
		if e.Fact != effects.FactBrought {
			return
		}
		if s := h.findSearch(int32(call.Node()), effects.Ticket(e.ID)); s != nil {
			s.refuted = s.refuted || e.Code == effects.NotFound
			h.checkNotStale(call, s)
		}
	})
	oracle.On(l, func(h *directoryReplies, call *oracle.Call, e *effects.Deliver) {
		s := h.findSearch(int32(call.Node()), e.Ticket)
		if s == nil {
			return
		}
		if a := h.findReply(s.node, s.hash); a != nil && s.refuted && e.Hits < s.localChunks+a.minChunks {
			a.wrongSince = call.Now()
		} else if e.Code == effects.OK && pd.ClusterOf(call).Commands[e.Ticket-1].Kind == wantLocate {
			h.checkNotStale(call, s)
		}
		h.removeSearch(s)
	})
})

// followQueries records the queries and the replies.
func followQueries(l *oracle.Subscriptions[directoryReplies]) {
	oracle.On(l, func(h *directoryReplies, call *oracle.Call, e *effects.Command) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if c := w.CommandOf(n, e.Ticket); !n.Custom && c != nil && queriesDirectories(w, c) {
			s := search{node: n.ID, ticket: e.Ticket, givenAt: call.Now()}
			keys := w.Jobs[c.Job].Keys
			if c.Kind == wantBring {
				s.localChunks = countReady(n, keys)
			}
			s.hash = queryHash(chunkHashes(keys[s.localChunks:], pd.InfoOf(n).Cfg.Directory.PrefixMax))
			h.searches = append(h.searches, s)
		}
	})
	oracle.On(l, func(h *directoryReplies, call *oracle.Call, e *effects.Send) {
		m := protocol.BatchedP2PLookupMsg{}
		c := pd.ClusterOf(call).ConnOf(uint64(e.Conn))
		if c != nil && c.Channel == effects.ChannelDirectory && m.Decode(e.Body, nil) == nil {
			h.queries = append(h.queries, query{int32(call.Node()), e.Corr, queryHash(m.Hashes)})
		}
	})
	oracle.On(l, func(h *directoryReplies, call *oracle.Call, e *effects.Replied) { h.recordReply(int32(call.Node()), e) })
	oracle.On(l, func(h *directoryReplies, call *oracle.Call, _ oracle.IncarnationEnded) {
		h.queries = slices.DeleteFunc(h.queries, func(x query) bool { return x.node == int32(call.Node()) })
		h.replies = slices.DeleteFunc(h.replies, func(x cachedReply) bool { return x.node == int32(call.Node()) })
		h.searches = slices.DeleteFunc(h.searches, func(x search) bool { return x.node == int32(call.Node()) })
	})
}

// recordReply records the reply of a directory.
func (h *directoryReplies) recordReply(node int32, e *effects.Replied) {
	i := slices.IndexFunc(h.queries, func(q query) bool { return q.node == node && q.corr == e.Corr })
	if i < 0 {
		return
	}
	hash, m := h.queries[i].hash, protocol.BatchedP2PLookupRetMsg{}
	if h.queries = slices.Delete(h.queries, i, i+1); m.Decode(e.Body, nil) != nil {
		return
	}
	a := h.findReply(node, hash)
	if a == nil {
		h.replies = append(h.replies, cachedReply{node: node, hash: hash, minChunks: ^uint32(0)})
		a = &h.replies[len(h.replies)-1]
	}
	a.wrongSince = 0
	maxChunks := uint32(0)
	for i := range m.Holders {
		if x := &m.Holders[i]; string(x.InstanceID) != world.NodeName(node) {
			a.minChunks, maxChunks = min(a.minChunks, x.HitChunks), max(maxChunks, x.HitChunks)
		}
	}
	a.countBits |= 1 << min(maxChunks, 63)
}

// checkNotStale checks that a command does not rely on a reply that was known to be wrong when the command was given.
func (h *directoryReplies) checkNotStale(call *oracle.Call, s *search) {
	a := h.findReply(s.node, s.hash)
	if a == nil {
		return
	}
	call.CountJudged(checkStaleReply)
	if a.wrongSince != 0 && a.wrongSince < s.givenAt {
		call.Fail("node %d uses a cached reply for ticket %d, and learned %d ns before the command that the reply is wrong",
			oracle.Node(s.node), oracle.Ticket(s.ticket), s.givenAt-a.wrongSince)
	}
}

// findReply returns the last reply to a query, or nil.
func (h *directoryReplies) findReply(node int32, hash uint64) *cachedReply {
	if i := slices.IndexFunc(h.replies, func(a cachedReply) bool { return a.node == node && a.hash == hash }); i >= 0 {
		return &h.replies[i]
	}
	return nil
}

// findSearch returns the pending command of a ticket, or nil.
func (h *directoryReplies) findSearch(node int32, t effects.Ticket) *search {
	if i := slices.IndexFunc(h.searches, func(s search) bool { return s.node == node && s.ticket == t }); i >= 0 {
		return &h.searches[i]
	}
	return nil
}

// removeSearch removes a command that has its outcome.
func (h *directoryReplies) removeSearch(s *search) {
	h.searches = slices.DeleteFunc(h.searches, func(x search) bool { return x.node == s.node && x.ticket == s.ticket })
}

// queriesDirectories reports whether the rank queries the directories for a command, about the chunks that the node
// does not have. Chunks that are kept for the request need no query.
func queriesDirectories(w *pd.Cluster, c *pd.Command) bool {
	j := &w.Jobs[c.Job]
	isRepeat := j.CommandCounts[wantBring] > 1 && transferMode(w.Nodes[c.Node], j) == ops.Delayed
	return c.Kind == wantLocate || c.Kind == wantBring && j.Flags[findWord] && !isRepeat
}

// countReady returns how many leading chunks of keys a node has.
func countReady(n *world.Node, keys [][]byte) (count uint32) {
	for _, key := range keys {
		if _, ok := pd.ReadyAt(n, key); !ok {
			break
		}
		count++
	}
	return count
}

// chunkHashes returns the hashes by which directories are queried, for at most the given number of leading keys.
func chunkHashes(keys [][]byte, limit int) (all []protocol.ChunkHash) {
	for _, key := range keys[:min(len(keys), limit)] {
		hash, ok := protocol.ChunkHashOfKey(key)
		if !ok {
			break
		}
		all = append(all, hash)
	}
	return all
}

// queryHash returns a hash that identifies a query.
func queryHash(hashes []protocol.ChunkHash) uint64 {
	sum := uint64(len(hashes))
	for _, h := range hashes {
		sum = (sum ^ h.Bits) * 0x9E3779B97F4A7C15
		sum ^= sum >> 29
	}
	return sum
}
