package ledger

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A layerwise push reports times like a put: each batch of layers from the Save of its first layer on, and the request from
// its Begin on (L11). putTimeOracle measures the batches as it measures puts.

// The checks of this file.
var (
	checkLayerTime   = oracle.NewCheck("L11", "times of batches of layers")
	checkLayerPhases = oracle.NewCheck("L11", "phases of batches of layers")
	checkLayerWaits  = oracle.NewCheck("L11", "phases of batches of layers that wait")
	checkRunTime     = oracle.NewCheck("L11", "times of layerwise requests")
)

// A layerRun is a layerwise push of a request, from its Begin on.
type layerRun struct {
	request    []byte
	host       string // of the peer; empty: nothing is sent
	began      effects.Time
	finish     effects.Ticket
	finishedAt effects.Time
	layers     []savedLayer
}

// A savedLayer is a layer of a chunk that the engine has saved, or handed over with its Finish.
type savedLayer struct {
	chunk    []byte
	layer    uint32
	at       effects.Time
	upBefore effects.Duration // how long the link had been up
	bytes    uint32
	tail     bool // of a Finish
}

// runOf returns the newest run of a request, or nil.
func (s *putTimeState) runOf(request []byte) *layerRun {
	if i := slices.IndexFunc(s.runs, func(x layerRun) bool { return bytes.Equal(x.request, request) }); i >= 0 {
		return &s.runs[i]
	}
	return nil
}

// saveLayer records a layer, unless it was saved before in this epoch: what was saved again is not sent again.
func (or *putTimeOracle) saveLayer(n *world.Node, r *layerRun, x savedLayer) {
	if slices.ContainsFunc(r.layers, func(y savedLayer) bool { return y.layer == x.layer && bytes.Equal(y.chunk, x.chunk) }) {
		return
	}
	x.at = or.w.ReadClock(n)
	x.upBefore = or.stateOf(n).linkOf(r.host).timeUp(x.at)
	r.layers = append(r.layers, x)
}

// recordLayerCommand records a Finish when it is received, because its layers may be sent before it has an outcome.
func (or *putTimeOracle) recordLayerCommand(n *world.Node, c *pd.Command, t effects.Ticket) {
	body, ok := c.Body.(*layerwise.Finish)
	if !ok {
		return
	}
	r := or.stateOf(n).runOf(body.Request)
	if r == nil || r.finish != 0 {
		return
	}
	r.finish, r.finishedAt = t, or.w.ReadClock(n)
	for layer, page := range body.Pages {
		or.saveLayer(n, r, savedLayer{chunk: body.Key, layer: uint32(layer), bytes: page.Length, tail: true})
	}
}

// recordLayerOutcome records the other commands of a layerwise push when they are accepted.
func (or *putTimeOracle) recordLayerOutcome(n *world.Node, c *pd.Command, e *effects.Deliver) {
	state := or.stateOf(n)
	switch body := c.Body.(type) {
	case *layerwise.Begin:
		if e.Code == effects.OK {
			state.runs = slices.DeleteFunc(state.runs, func(x layerRun) bool { return bytes.Equal(x.request, body.Request) })
			state.runs = append(state.runs, layerRun{request: body.Request, host: body.Peer.Host, began: or.w.ReadClock(n)})
		}
	case *layerwise.Save:
		r := state.runOf(body.Request)
		if e.Code != effects.OK || r == nil {
			return
		}
		whole := body.Tokens / pd.InfoOf(n).Cfg.Layout.TokenCount()
		for i, key := range body.Keys {
			if body.First+uint32(i) < whole {
				or.saveLayer(n, r, savedLayer{chunk: key, layer: body.Layer, bytes: body.Pages[i].Length})
			}
		}
	case *layerwise.Preempt:
		if r := state.runOf(body.Request); e.Code == effects.OK && r != nil {
			r.layers = r.layers[:0]
		}
	case *layerwise.Finish:
		if r := state.runOf(body.Request); r != nil && r.finish == e.Ticket && e.Code == effects.Invalid {
			// The Finish was refused, and the run goes on. A Finish that ends a run by this code ends it in the same step.
			r.finish = 0
			r.layers = slices.DeleteFunc(r.layers, func(x savedLayer) bool { return x.tail })
		}
	}
}

// recordLayerRequest begins the record of a batch of layers, if that is what a request asks pages for.
func (or *putTimeOracle) recordLayerRequest(n *world.Node, c *world.Conn, corr effects.Corr, m *protocol.AllocRequest) bool {
	state := or.stateOf(n)
	r := state.runOf(m.Ext.Request)
	if r == nil || r.host != c.Host {
		return false
	}
	x := putTime{host: r.host, operation: m.Ext.Operation, corr: corr, layers: true, began: -1}
	var split protocol.LayerKeyChecker
	for _, key := range m.Keys {
		chunk, layer, found := key, uint32(0), false
		if m.Ext.Layers > 0 {
			var err error
			if chunk, layer, err = split.Split(key, len(key)); err != nil {
				return false
			}
		}
		for i := range r.layers {
			y := &r.layers[i]
			if m.Ext.Layers > 0 && y.layer != layer || !bytes.Equal(y.chunk, chunk) {
				continue
			}
			found = true
			if x.bytes += uint64(y.bytes); x.began < 0 || y.at < x.began {
				x.began, x.since, x.upBefore = y.at, y.at, y.upBefore
			}
		}
		if !found {
			return false // an ordinary put for the same request
		}
	}
	x.phase = effects.PhaseQueue
	or.enterPhase(n, &x, effects.PhaseAllocation)
	state.puts = slices.DeleteFunc(state.puts, func(x putTime) bool { return x.over })
	state.puts = append(state.puts, x)
	return true
}

// verifyLayerReport compares the report of a batch of layers with the times that the oracle has measured. Of a batch that
// ends before its first request the oracle knows that it waited all the time, and that it began with a Save.
func (or *putTimeOracle) verifyLayerReport(n *world.Node, e *effects.Observe) {
	state, now, r := or.stateOf(n), or.w.ReadClock(n), e.Report
	or.countJudged(checkLayerTime)
	if r == nil || r.Began.Add(r.Phases.Sum()) != now {
		or.fail(checkLayerTime, "node %d ends a batch of layers after %d ns, and reports %+v", n.AsSubject(), now, r)
		return
	}
	i := slices.IndexFunc(state.puts, func(x putTime) bool { return x.layers && !x.over && x.operation == e.ID })
	if i < 0 {
		waited := r.Phases[effects.PhaseHandshake] + r.Phases[effects.PhaseQueue]
		if waited != r.Phases.Sum() || !or.isSaveTime(state, r.Began) {
			or.fail(checkLayerTime, "node %d ends a batch of layers that was never sent, and reports %+v", n.AsSubject(), *r)
		}
		return
	}
	x := &state.puts[i]
	x.over = true
	if r.Began != x.began || r.Bytes != x.bytes {
		or.fail(checkLayerTime, "node %d ends a batch of layers that began at %d and has %d bytes, and reports %+v", n.AsSubject(), x.began,
			x.bytes, *r)
		return
	}
	v := or.comparePhases(n, x, r)
	if v.void {
		or.countVoid(checkLayerPhases)
		return
	}
	if or.countJudged(checkLayerPhases); v.voidWaits {
		or.countVoid(checkLayerWaits)
	} else {
		or.countJudged(checkLayerWaits)
	}
	switch {
	case v.problem == "":
	case v.ofWaits:
		or.fail(checkLayerWaits, "node %d ends a batch of layers and reports %s", n.AsSubject(), v.problem)
	default:
		or.fail(checkLayerPhases, "node %d ends a batch of layers and reports %s", n.AsSubject(), v.problem)
	}
}

// isSaveTime reports whether a layer was saved at an instant.
func (*putTimeOracle) isSaveTime(state *putTimeState, at effects.Time) bool {
	return slices.ContainsFunc(state.runs, func(r layerRun) bool {
		return slices.ContainsFunc(r.layers, func(x savedLayer) bool { return x.at == at })
	})
}

// verifyRunReport compares the report of a layerwise request with when its engine began and finished it.
func (or *putTimeOracle) verifyRunReport(n *world.Node, e *effects.Observe) {
	state, now := or.stateOf(n), or.w.ReadClock(n)
	i := slices.IndexFunc(state.runs, func(x layerRun) bool { return x.finish == effects.Ticket(e.ID) })
	if i < 0 {
		return
	}
	or.countJudged(checkRunTime)
	x := &state.runs[i]
	want := effects.Report{Began: x.began, Phases: effects.PhaseTimes{effects.PhaseQueue: x.finishedAt.Sub(x.began),
		effects.PhaseWire: now.Sub(x.finishedAt)}}
	if e.Report == nil || e.Report.Began != want.Began || e.Report.Phases != want.Phases {
		or.fail(checkRunTime, "node %d ends a layerwise request with the times %+v, and reports %+v", n.AsSubject(), want, e.Report)
	}
	state.runs = slices.Delete(state.runs, i, i+1)
}
