package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file.
var (
	checkCode    = oracle.NewCheck("L3", "outcomes of recalls")
	checkLength  = oracle.NewCheck("S21", "lengths of chunks recalled")
	checkWhole   = oracle.NewCheck("S1", "parts of chunks recalled")
	checkKey     = oracle.NewCheck("S2", "keys of chunks recalled")
	checkWriters = oracle.NewCheck("S4", "recalled pages that a transfer still writes")
)

// recallOracle checks the chunks and the outcome codes that engines receive for their recalls.
var recallOracle = oracle.New("recalls", "recalled chunks are the chunks that were sent", func(l *oracle.Subscriptions[refusedHandshakes]) {
	oracle.On(l, func(b *refusedHandshakes, call *oracle.Call, e *effects.Observe) {
		if e.Fact == effects.FactLinkDown && e.Code == effects.Refused {
			b.nodes[call.Node()] = true
		}
	})
	oracle.On(l, func(b *refusedHandshakes, call *oracle.Call, _ oracle.IncarnationEnded) { b.nodes[call.Node()] = false })
	oracle.On(l, func(b *refusedHandshakes, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		if c := w.CommandOf(n, e.Ticket); c != nil && c.Kind == wantRecall && !c.Finished {
			checkRecall(call, w, n, e, c, e.Code == effects.Refused && b.nodes[call.Node()])
		}
	})
})

// refusedHandshakes records the nodes that had a handshake refused, for example because a later hello superseded the
// handshake. A recall that waits for a link until the timeout ends with the code of the handshake.
type refusedHandshakes struct{ nodes [plan.NodesMax]bool }

// checkRecall checks the outcome of a recall. If excused is set, the code may be the code of a refused handshake.
func checkRecall(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command, excused bool) {
	j := &w.Jobs[c.Job]
	call.CountJudged(checkCode)
	if e.Code == effects.Malformed || e.Code == effects.Refused || e.Code == effects.Invalid {
		if excused || pd.IsUnreliable(w) {
			call.CountVoid(checkCode)
			return
		}
		call.FailCheck(checkCode, "node %d ends the recall of request %q as %s, and no peer sent a false message",
			n.AsSubject(), oracle.Request(j.Name), e.Code)
	}
	if e.Code != effects.OK {
		return
	}
	for i, p := range e.Pages[:min(int(e.Hits), len(e.Pages))] {
		if !checkChunk(call, w, n, j, i, p) {
			return
		}
	}
}

// checkChunk checks the recalled chunk with index i of job j in page p, and reports whether the chunk is right.
func checkChunk(call *oracle.Call, w *pd.Cluster, n *world.Node, j *pd.Job, i int, p effects.Page) bool {
	pg := &n.Pool.Pages[p.Index]
	call.CountJudged(checkLength, checkWhole, checkKey, checkWriters)
	covered := n.Pool.PartCount(p.Length)
	if expected := chunkTokens(w, j, i); covered != expected {
		call.FailCheck(checkLength, "chunk %d of request %q comes back to node %d with %d parts instead of %d",
			i, oracle.Request(j.Name), n.AsSubject(), covered, expected)
		return false
	}
	if pg.Writers > 0 {
		call.FailCheck(checkWriters, "chunk %d of request %q comes back to node %d while a transfer may still store into page %d",
			i, oracle.Request(j.Name), n.AsSubject(), n.PageSubject(p.Index))
		return false
	}
	for part := range covered {
		switch s := pg.Stamps[part]; {
		case s == 0 || s.Part() != part || s.Fill() != pg.Stamps[0].Fill():
			call.FailCheck(checkWhole, "chunk %d of request %q comes back to node %d torn: part %d of page %d",
				i, oracle.Request(j.Name), n.AsSubject(), part, n.PageSubject(p.Index))
			return false
		case s.Key() != j.KeyNumbers[i]:
			call.FailCheck(checkKey, "chunk %d of request %q comes back to node %d as key %d instead of %d",
				i, oracle.Request(j.Name), n.AsSubject(), oracle.Key(s.Key()), j.KeyNumbers[i])
			return false
		}
	}
	return true
}

// chunkTokens returns the length in tokens of the chunk with index i of job j, as in the first job that sent the chunk.
func chunkTokens(w *pd.Cluster, j *pd.Job, i int) int {
	for k := range w.Jobs {
		x := &w.Jobs[k]
		if x.Flags[flowWord] {
			continue
		}
		for at, id := range x.KeyNumbers {
			if id == j.KeyNumbers[i] {
				return int(x.TokensOf(at))
			}
		}
	}
	return int(j.TokensOf(i))
}
