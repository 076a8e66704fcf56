package layerwise

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file.
var (
	checkImmediate  = oracle.NewCheck("L1", "outcomes of saves in the same step")
	checkCode       = oracle.NewCheck("L3", "outcomes of layers")
	checkTwice      = oracle.NewCheck("S9", "layers that are sent once per epoch")
	checkStaysWhole = oracle.NewCheck("S9", "whole chunks that are not sent again")
	checkMerged     = oracle.NewCheck("S17", "layers that are sent together, within the bytes of a batch")
	checkTail       = oracle.NewCheck("S9", "incomplete last chunks, requested last")
	checkOrigin     = oracle.NewCheck("S1", "layers of a chunk, all of the same origin")
	checkFinish     = oracle.NewCheck("S9", "requests that finish with success")
	checkLast       = oracle.NewCheck("S9", "requests reported to the proxy after their last layer")
	checkMissing    = oracle.NewCheck("S9", "chunks of layers reported as missing")
	checkFits       = oracle.NewCheck("L3", "chunks whose layers share a page at the receiver")
	checkRoom       = oracle.NewCheck("L3", "layers without room at the receiver")
	checkNobody     = oracle.NewCheck("S9", "requests without a receiver")
)

// outcomesOracle checks the outcomes of layerwise commands. Every command other than the finish must have its outcome
// in the same step, so that the engine never waits.
var outcomesOracle = oracle.New("layers at once", "an engine that saves a layer never waits", func(l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		c := layerCommand(w, n, e.Ticket)
		if c == nil {
			return
		}
		call.CountJudged(checkCode)
		if e.Code == effects.Malformed || e.Code == effects.Refused || e.Code == effects.Invalid {
			// A node that lacks the tenant of the layers refuses the saves, so their finish names too many tokens.
			lacksTenant := c.Kind == wantFinish && pd.LacksOwnTenant(n, &ops.Save{Keys: w.Jobs[c.Job].Keys})
			if pd.IsUnreliable(w) || lacksTenant {
				call.CountVoid(checkCode)
			} else {
				call.FailCheck(checkCode, "node %d ends %s of request %q as %s, and no peer sent a false message",
					n.AsSubject(), c.Kind, oracle.Request(w.Jobs[c.Job].Name), e.Code)
			}
		}
		if j := &w.Jobs[c.Job]; e.Code == effects.Unsupported && !w.Setup.Mismatch && !pd.IsUnreliable(w) &&
			w.Nodes[j.Receiver].Up && pd.InfoOf(w.Nodes[j.Receiver]).Cfg.Layers > 0 {
			call.FailCheck(checkCode, "node %d ends %s of request %q as %s, and the receiver accepts layers, or whole chunks of them",
				n.AsSubject(), c.Kind, oracle.Request(j.Name), e.Code)
		}
		if j := &w.Jobs[c.Job]; j.SenderPagesPerChunk > 0 && (e.Code == effects.Mismatch || e.Code == effects.Unsupported) {
			if w.Setup.Mismatch || pd.IsUnreliable(w) {
				call.CountVoid(checkFits)
			} else {
				call.FailCheck(checkFits, "node %d ends %s of request %q as %s, although the receiver has all layers of a chunk in a page",
					n.AsSubject(), c.Kind, oracle.Request(j.Name), e.Code)
			}
		}
		checkNoRoom(call, w, n, e, c)
		if c.Kind == wantFinish {
			call.CountJudged(checkFits)
			return
		}
		if call.CountJudged(checkImmediate); n.StepCount != c.ReceivedStep {
			call.FailCheck(checkImmediate, "node %d does not end %s of request %q in the same step, ticket %d",
				n.AsSubject(), c.Kind, oracle.Request(w.Jobs[c.Job].Name), oracle.Ticket(e.Ticket))
		}
	})
	oracle.On(l, func(_ *struct{}, call *oracle.Call, _ *effects.Tick) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		for _, t := range w.OpenCommands.Items {
			c := layerCommand(w, n, t)
			if c != nil && c.Kind != wantFinish && c.ReceivedStep != 0 && c.ReceivedStep < n.StepCount && c.Incarnation == n.Incarnation {
				call.FailCheck(checkImmediate, "node %d does not end %s of request %q in the same step, ticket %d",
					n.AsSubject(), c.Kind, oracle.Request(w.Jobs[c.Job].Name), oracle.Ticket(t))
			}
		}
	})
})

// checkNoRoom checks that a request is not given up because the receiver has no room for a layer. The rank must retry
// until the timeout. The check allows the failure after half of the timeout, because clocks drift.
func checkNoRoom(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	call.CountJudged(checkRoom)
	if e.Code != effects.NoMemory && e.Code != effects.BackedOff {
		return
	}
	if c.Kind != wantFinish || w.Now < pd.ReceiptTime(c, n)+int64(c.Timeout)/2 {
		call.FailCheck(checkRoom, "node %d ends %s of request %q as %s before the timeout, instead of waiting for room",
			n.AsSubject(), c.Kind, oracle.Request(w.Jobs[c.Job].Name), e.Code)
	}
}

// layerCommand returns the layerwise command of a ticket if the command has no outcome yet, and nil otherwise.
func layerCommand(w *pd.Cluster, n *world.Node, t effects.Ticket) *pd.Command {
	if n.Custom {
		return nil
	}
	if c := w.CommandOf(n, t); c != nil && isLayerCommand(c) && !c.Finished {
		return c
	}
	return nil
}

// sentLayers records what was sent of each job, for the incarnation of the sender that works on the job.
type sentLayers struct {
	jobs      map[int]*jobProgress
	transfers map[transferKey]layerTransfer
	request   protocol.AllocRequest `snap:"scratch"`
}

// transferKey identifies a transfer.
type transferKey struct {
	node oracle.Node
	corr effects.Corr
}

// layerTransfer lists the layers that a transfer carries.
type layerTransfer struct {
	job    int
	epoch  int
	layers []int
}

// jobProgress is the progress of a job.
type jobProgress struct {
	incarnation   uint32
	epoch         int
	sent          map[int]bool    // pages that were sent in this epoch, by index
	delivered     map[int]bool    // pages whose transfer succeeded in this epoch
	wholeChunks   map[int]bool    // chunks of which all layers were delivered in some epoch
	beforeFinish  bool            // some layers were sent before the request was finished
	tailRequested bool            // pages for the incomplete last chunk were requested
	requestedKeys map[string]bool // keys for which pages were requested in this epoch
}

// transferOracle checks the transfers of senders: each layer is sent at most once per epoch, and no layer is requested
// of a chunk that is already whole at the receiver.
var transferOracle = oracle.New("layers once", "no layer is sent twice", func(l *oracle.Subscriptions[sentLayers]) {
	oracle.On(l, func(s *sentLayers, call *oracle.Call, e *effects.Command) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if c := layerCommand(w, n, e.Ticket); c != nil && isPreempt(c) {
			s.progressOf(w, n, c.Job).beginEpoch(pagesPerChunk(&w.Jobs[c.Job]))
		}
	})
	oracle.On(l, func(s *sentLayers, call *oracle.Call, e *effects.Transfer) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom || e.Read {
			return
		}
		x := layerTransfer{job: -1}
		locals := slices.Clone(e.Gather.Pages)
		for i := 0; i < len(e.Pairs) && e.Gather.Layers == 0; i++ {
			locals = append(locals, e.Pairs[i].Local)
		}
		for _, p := range locals {
			job, at := findLayer(w, n, p)
			if job < 0 {
				return
			}
			g := s.progressOf(w, n, job)
			j := &w.Jobs[job]
			if drawPrefill(w, j).noReceiver {
				call.FailCheck(checkNobody, "node %d sends layer %d of chunk %d of request %q, which has no receiver",
					n.AsSubject(), at%pagesPerChunk(j), at/pagesPerChunk(j), oracle.Request(j.Name))
				return
			}
			x.job, x.epoch, x.layers = job, g.epoch, append(x.layers, at)
			call.CountJudged(checkTwice)
			if g.sent[at] {
				call.FailCheck(checkTwice, "node %d sends layer %d of chunk %d of request %q twice",
					n.AsSubject(), at%pagesPerChunk(j), at/pagesPerChunk(j), oracle.Request(j.Name))
				return
			}
			g.sent[at] = true
		}
		s.checkBatchBytes(call, w, n, e, x.job)
		if s.transfers == nil {
			s.transfers = map[transferKey]layerTransfer{}
		}
		s.transfers[transferKey{call.Node(), e.Corr}] = x
	})
	oracle.On(l, func(s *sentLayers, call *oracle.Call, e *effects.Send) {
		w := pd.ClusterOf(call)
		if n := w.Nodes[call.Node()]; !n.Custom {
			s.checkRequest(call, w, n, e.Body)
		}
	})
	oracle.On(l, func(s *sentLayers, call *oracle.Call, e *effects.TransferDone) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		at := transferKey{call.Node(), e.Corr}
		x, ok := s.transfers[at]
		if !ok {
			return
		}
		delete(s.transfers, at)
		g := s.progressOf(w, n, x.job)
		if e.Code != effects.OK || g.epoch != x.epoch || w.Conditions.Leased {
			return
		}
		for _, id := range x.layers {
			g.delivered[id] = true
		}
	})
})

// checkBatchBytes checks the size of a transfer. While a request is sent layer by layer, a transfer has a single page,
// or at most the configured number of bytes.
func (s *sentLayers) checkBatchBytes(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Transfer, job int) {
	g := s.progressOf(w, n, job)
	g.beforeFinish = g.beforeFinish || countCommands(w, n, &w.Jobs[job], wantFinish) == 0
	if !g.beforeFinish {
		call.CountVoid(checkMerged)
		return
	}
	bytes := uint64(0)
	for _, p := range e.Pairs {
		bytes += uint64(p.Local.Length)
	}
	if call.CountJudged(checkMerged); len(e.Pairs) > 1 && bytes > pd.InfoOf(n).Cfg.MergeBytes {
		call.FailCheck(checkMerged, "node %d sends %d bytes of request %q in one batch, and the limit is %d",
			n.AsSubject(), bytes, oracle.Request(w.Jobs[job].Name), pd.InfoOf(n).Cfg.MergeBytes)
	}
}

// checkRequest checks that pages for the incomplete last chunk are requested after the pages for all whole chunks.
func (s *sentLayers) checkRequest(call *oracle.Call, w *pd.Cluster, n *world.Node, body []byte) {
	m := &s.request
	if m.Decode(body, &pd.WireLimits) != nil || len(m.Keys) == 0 || m.Ext.Attempt != 1 {
		return
	}
	at := w.JobIndex(m.Ext.Request)
	if at >= uint64(len(w.Jobs)) || !w.Jobs[at].Flags[layerwiseFlag] {
		return
	}
	g := s.progressOf(w, n, int(at))
	if s.checkNotWhole(call, w, n, g, &w.Jobs[at]); w.Failure != nil {
		return
	}
	if m.LastChunkTokens < pd.InfoOf(n).Cfg.Layout.TokenCount() {
		g.tailRequested = true
		return
	}
	unseen := false // Keys that found no room are requested again.
	for _, key := range m.Keys {
		if !g.requestedKeys[string(key)] {
			unseen, g.requestedKeys[string(key)] = true, true
		}
	}
	if call.CountJudged(checkTail); g.tailRequested && unseen {
		call.FailCheck(checkTail, "node %d requests pages for layers of request %q after the incomplete last chunk",
			n.AsSubject(), oracle.Request(m.Ext.Request))
	}
}

// checkNotWhole checks that no pages are requested for layers of a chunk that is whole at the receiver.
func (s *sentLayers) checkNotWhole(call *oracle.Call, w *pd.Cluster, n *world.Node, g *jobProgress, j *pd.Job) {
	if w.Jobs[j.Index].Sender != n.ID {
		return
	}
	for _, key := range s.request.Keys {
		// A key may occur in several chunks of one request: the whole chunk 0 does not forbid a page for chunk 1.
		named, whole := -1, true
		for i, k := range j.Keys {
			if string(k) == string(key) {
				named, whole = i, whole && g.wholeChunks[i/j.KeysPerChunk()]
			}
		}
		if named < 0 {
			continue
		}
		if call.CountJudged(checkStaysWhole); whole {
			call.FailCheck(checkStaysWhole, "node %d requests a page for layer %d of chunk %d of request %q, which is whole at the receiver",
				n.AsSubject(), named%j.KeysPerChunk(), named/j.KeysPerChunk(), oracle.Request(j.Name))
			return
		}
	}
}

// progressOf returns the progress of a job in the present incarnation of the sender.
func (s *sentLayers) progressOf(_ *pd.Cluster, n *world.Node, job int) *jobProgress {
	if s.jobs == nil {
		s.jobs = map[int]*jobProgress{}
	}
	g := s.jobs[job]
	if g == nil || g.incarnation != n.Incarnation {
		g = &jobProgress{incarnation: n.Incarnation, sent: map[int]bool{}, delivered: map[int]bool{}, wholeChunks: map[int]bool{},
			requestedKeys: map[string]bool{}}
		s.jobs[job] = g
	}
	return g
}

// beginEpoch begins a new epoch.
func (g *jobProgress) beginEpoch(layers int) {
	count := map[int]int{}
	for id := range g.delivered {
		if count[id/layers]++; count[id/layers] == layers {
			g.wholeChunks[id/layers] = true
		}
	}
	g.epoch++
	g.sent, g.delivered, g.requestedKeys = map[int]bool{}, map[int]bool{}, map[string]bool{}
}

// findLayer returns the job that has a layer in a page of the sender, and the index of that page. The job is -1 if
// there is none.
func findLayer(w *pd.Cluster, n *world.Node, p effects.Page) (job, at int) {
	reserve := n.Pool.Pages[p.Index].Reserved
	if reserve == 0 {
		return -1, 0
	}
	c := &w.Commands[reserve-1]
	if !w.Jobs[c.Job].Flags[layerwiseFlag] {
		return -1, 0
	}
	for i, q := range c.Pages {
		if q.Index == p.Index {
			return c.Job, i
		}
	}
	return -1, 0
}

// wholeChunks holds the chunks that became readable at some time, by node.
type wholeChunks struct {
	chunks map[wholeKey]bool
}

type wholeKey struct {
	node  oracle.Node
	chunk uint32
}

// wholeOracle checks that all layers of a chunk have the same origin when an engine gets the chunk.
var wholeOracle = oracle.New("layers of one origin", "no chunk has layers of two origins", func(l *oracle.Subscriptions[wholeChunks]) {
	oracle.On(l, func(s *wholeChunks, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Finished || c.Job >= len(w.Jobs) || !w.Jobs[c.Job].Flags[layerwiseFlag] { // A drain has no job.
			return
		}
		if c.Kind == wantFinish {
			s.checkFinished(call, w, n, e, c)
			return
		}
		layers := w.Jobs[c.Job].Layers
		if isLayerCommand(c) || layers == 0 || e.Hits == 0 || int(e.Hits)*layers != len(e.Pages) {
			return
		}
		call.CountJudged(checkOrigin)
		for i, p := range e.Pages {
			first := n.Pool.Pages[e.Pages[i/layers*layers].Index].Stamps[0]
			if got := n.Pool.Pages[p.Index].Stamps[0]; got.Fill() != first.Fill() {
				call.FailCheck(checkOrigin, "node %d gets layer %d of chunk %d of request %q, which has another origin than the first layer",
					n.AsSubject(), i%layers, i/layers, oracle.Request(w.Jobs[c.Job].Name))
				return
			}
		}
	})
	oracle.On(l, func(s *wholeChunks, call *oracle.Call, e *effects.Observe) {
		if e.Fact != effects.FactReady {
			return
		}
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		for i := range w.Jobs {
			j := &w.Jobs[i]
			for k := 0; k < len(j.Keys) && pagesPerChunk(j) > 0; k += j.KeysPerChunk() {
				if pd.KeyHashOf(n, j.Keys[k]) == e.ID {
					if s.chunks == nil {
						s.chunks = map[wholeKey]bool{}
					}
					s.chunks[wholeKey{call.Node(), j.KeyNumbers[k]}] = true
				}
			}
		}
	})
})

// checkFinished checks that every chunk of a request became readable at the receiver if the request finished with
// success.
func (s *wholeChunks) checkFinished(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code != effects.OK {
		return
	}
	j := &w.Jobs[c.Job]
	if drawPrefill(w, j).noReceiver {
		if call.CountJudged(checkNobody); e.Sent != 0 {
			call.FailCheck(checkNobody, "node %d reports %d sent chunks of request %q, which has no receiver",
				n.AsSubject(), e.Sent, oracle.Request(j.Name))
		}
		return
	}
	call.CountJudged(checkFinish)
	for k := 0; k < len(j.Keys); k += j.KeysPerChunk() {
		if !s.chunks[wholeKey{oracle.Node(j.Receiver), j.KeyNumbers[k]}] {
			if slices.ContainsFunc(w.Nodes[j.Receiver].Pool.Pages, func(p world.Page) bool { return p.TrustedGrant != 0 }) {
				call.CountVoid(checkFinish) // The receiver believes that a vanilla sender has written the chunk.
				return
			}
			call.FailCheck(checkFinish, "node %d finishes request %q with success although chunk %d never became whole at node %d",
				n.AsSubject(), oracle.Request(j.Name), k/j.KeysPerChunk(), oracle.Node(j.Receiver))
			return
		}
	}
}

// proxyReports records the requests that were reported to the proxy.
type proxyReports struct {
	incarnations map[int]uint32 // the incarnation of the sender plus one, by job
}

// proxyOracle checks that a request is reported to the proxy only after the last layer was sent.
var proxyOracle = oracle.New("layers reported", "the proxy is notified after the last layer", func(l *oracle.Subscriptions[proxyReports]) {
	oracle.On(l, func(s *proxyReports, call *oracle.Call, e *effects.Post) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		var m protocol.ProxyNotif
		if n.Custom || m.Decode(e.Body, &pd.WireLimits) != nil {
			return
		}
		at := w.JobIndex(m.RequestID)
		if at >= uint64(len(w.Jobs)) || !w.Jobs[at].Flags[layerwiseFlag] {
			return
		}
		if drawPrefill(w, &w.Jobs[at]).noReceiver {
			call.FailCheck(checkNobody, "node %d reports request %q to the proxy, and it has no receiver",
				n.AsSubject(), oracle.Request(m.RequestID))
			return
		}
		call.CountJudged(checkLast, checkMissing)
		ended := false
		for i := range w.Commands {
			c := &w.Commands[i]
			if c.Kind == wantFinish && c.Job == int(at) && c.Node == n.ID && c.Incarnation == n.Incarnation && c.Finished {
				ended = true
				if c.Code == effects.OK && m.Failed > 0 {
					call.FailCheck(checkMissing, "node %d reports to the proxy that %d chunks of request %q are missing, which finished with success",
						n.AsSubject(), m.Failed, oracle.Request(m.RequestID))
				}
			}
		}
		if !ended {
			call.FailCheck(checkLast, "node %d reports request %q to the proxy before it has finished",
				n.AsSubject(), oracle.Request(m.RequestID))
		}
		if s.incarnations == nil {
			s.incarnations = map[int]uint32{}
		}
		s.incarnations[int(at)] = n.Incarnation + 1
	})
	oracle.On(l, func(s *proxyReports, call *oracle.Call, e *effects.Transfer) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom || e.Read || len(e.Pairs) == 0 {
			return
		}
		if job, _ := findLayer(w, n, e.Pairs[0].Local); job >= 0 && s.incarnations[job] == n.Incarnation+1 {
			call.FailCheck(checkLast, "node %d sends layers of request %q after reporting it to the proxy",
				n.AsSubject(), oracle.Request(w.Jobs[job].Name))
		}
	})
})
