package gateway

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// This file has the commands that the engine of the node gives.

// The commands of the node's engine.
type (
	receiveBody struct{ number uint32 } // register blocks for a request that a producer computes
	expectBody  struct{ number uint32 } // keep such a request at its producer until it is registered
	lendBody    struct{ number uint32 } // lend the blocks of a computed request to the consumer that registers
	strayBody   struct{ number uint32 } // register blocks with, or expect a request of, an engine that does not exist
	abortBody   struct{ nth uint32 }    // abort an open command
	healBody    struct{}                // libnixl does not fail any more
	forgetBody  struct {                // the rank does not know its peers any more, for some time
		span effects.Duration
	}
	refuseBody struct { // the rank does not know its peers, and refuses hellos, for some time
		number uint32
		span   effects.Duration
	}
	flakyBody struct { // notifications count as not sent, for some time
		number uint32
		span   effects.Duration
	}
	unlinkBody struct{ nth uint32 }    // a link to a producer is lost, or several are
	loseBody   struct{ nth uint32 }    // the writer of an idle consumer fails
	astrayBody struct{ number uint32 } // expect a request of a rank that its engine does not have
	cancelBody struct{}                // cancel all hellos, as the driver does before it closes
)

func (*receiveBody) IsCommand() {}
func (*expectBody) IsCommand()  {}
func (*lendBody) IsCommand()    {}
func (*strayBody) IsCommand()   {}
func (*abortBody) IsCommand()   {}
func (*healBody) IsCommand()    {}
func (*cancelBody) IsCommand()  {}
func (*forgetBody) IsCommand()  {}
func (*refuseBody) IsCommand()  {}
func (*flakyBody) IsCommand()   {}
func (*unlinkBody) IsCommand()  {}
func (*loseBody) IsCommand()    {}
func (*astrayBody) IsCommand()  {}

// The numbers of items that have more than one link to producers lost: all links, or the latest link to each producer.
// With the latter the rank is connected to some ranks of a producer only.
const (
	unlinkAll    = 100
	unlinkLatest = 101
)

// How the rank refuses hellos for some time.
const (
	refusesHellos  = iota // as if its table of peers were full
	replacesHellos        // as if another hello took the place of each before its list of buffers arrives
	refusalKinds
)

// refuseHello changes what the gateway sends to the rank as if the rank had forgotten its peers and took no others, while
// it refuses hellos: registrations and heartbeats are stale, a hello states pages that do not fit, or a list of buffers
// follows no hello.
func (h *host) refuseHello(e *effects.Received) {
	if h.now >= h.refuseUntil {
		return
	}
	limits := protocol.DefaultLimits()
	var hello protocol.HixlInitRequest
	var list protocol.HixlMemInfoRequest
	var kept protocol.PushKeep
	switch {
	case e.Channel == effects.ChannelInit && h.refusal == refusesHellos && hello.Decode(e.Body, &limits) == nil && hello.HasExt:
		hello.Ext.PageBytes++
		e.Body = hello.Append(nil)
	case e.Channel == effects.ChannelInit && h.refusal == replacesHellos && list.Decode(e.Body, &limits) == nil:
		e.Conn = 1 // No hello comes on this connection: the gateway's numbers are higher.
	case protocol.PushKindOf(e.Body) == protocol.PushKindKeep && kept.Decode(e.Body, &limits) == nil:
		kept.To = protocol.UUID{1}
		e.Body = kept.Append(nil)
	}
}

// loseLinks has links to producers lost. The driver may report the loss of a link at any time.
func (h *host) loseLinks(nth uint32) {
	var open []effects.Link
	for _, link := range sortedKeys(h.links) {
		if l := h.links[link]; !l.lost && l.route.Agent == 0 { // The links to consumers end with their writers.
			open = append(open, link)
		}
	}
	for i, link := range open {
		l := h.links[link]
		isLatest := !slices.ContainsFunc(open[i+1:], func(later effects.Link) bool {
			return nodeOf(h.links[later].route.Name) == nodeOf(l.route.Name)
		})
		if nth == unlinkAll || nth == unlinkLatest && isLatest || nth < unlinkAll && i == int(nth)%len(open) {
			l.lost = true
			h.links[link] = l
			h.events = append(h.events, &effects.LinkLost{Link: link, Peer: l.peer})
		}
	}
}

// loseWriter has the writer of a consumer fail that has no registration open. The engine is queried anew when it registers
// again.
func (h *host) loseWriter(nth uint32, out *effects.Effects) {
	var idle []machine.Agent
	for i := range h.ledger.attempts {
		t := &h.ledger.attempts[i]
		a := h.agents[t.writer]
		if !t.ready || t.over || a == nil || !a.made || a.closing || h.ledger.isBusy(t.number) {
			continue
		}
		idle = append(idle, t.writer)
	}
	if len(idle) > 0 {
		h.failWriter(idle[int(nth)%len(idle)], out)
	}
}

// forgetPeer changes a registration of a consumer as if it were meant for a former incarnation of the rank, while the rank
// forgets its peers. The rank answers that it is stale.
func (h *host) forgetPeer(e *effects.Received) {
	limits := protocol.DefaultLimits()
	var m protocol.PushRegistration
	if h.now >= max(h.forgetUntil, h.refuseUntil) || protocol.PushKindOf(e.Body) != protocol.PushKindRegistration || m.Decode(e.Body,
		&limits) != nil {
		return
	}
	m.Ext.To = protocol.UUID{1}
	e.Body = m.Append(nil)
}

func (h *host) handleCommand(e *effects.Command, out *effects.Effects) {
	j := job{ticket: e.Ticket, began: h.now}
	switch x := e.Body.(type) {
	case *receiveBody:
		j.first, j.name = int(x.number%positionCount), requestName("r", x.number)
		j.required = mustSucceed(h.boot.Plan, x.number, "receive", "compute")
		if j.blocks = h.takeBlocks(positionCount - j.first); j.blocks == nil {
			break
		}
		j.timeout = receiveTimeout
		producer := producerOf(x.number)
		h.begin(j, &register.Register{
			Request: []byte(j.name + "-00000001"), Engine: []byte(producer), Ranks: h.shape.ranksOf(producer), Stages: 1,
			Producers: h.peersOf(producer), Timeout: j.timeout,
			Blocks: []geometry.Blocks{{First: uint64(j.first), Logical: j.blocks}},
		})
		return
	case *expectBody:
		j.name = requestName("r", x.number)
		h.begin(j, &register.Expect{
			Request: []byte(j.name + "-00000001"), Producers: h.peersOf(producerOf(x.number)), Timeout: 3 * registrationLease,
		})
		return
	case *strayBody:
		j.name = requestName("t", x.number)
		at := peerAt(stranger, strayPort(x.number), 0, 1)
		if x.number%strayKinds >= strayPorts {
			h.begin(j, &register.Expect{
				Request: []byte(j.name + "-00000001"), Producers: []register.Peer{at}, Timeout: effects.Second,
			})
			return
		}
		if j.blocks = h.takeBlocks(1); j.blocks == nil {
			break
		}
		j.timeout = receiveTimeout
		h.begin(j, &register.Register{
			Request: []byte(j.name + "-00000001"), Ranks: 1, Stages: 1, Timeout: j.timeout,
			Producers: []register.Peer{at},
			Blocks:    []geometry.Blocks{{First: positionCount - 1, Logical: j.blocks}},
		})
		return
	case *lendBody:
		j.lends, j.name, j.required = true, requestName("s", x.number), mustSucceed(h.boot.Plan, x.number, "lend", "want")
		// One block more than the request fills may be lent: what is behind the end holds nothing.
		if j.blocks = h.takeBlocks(positionCount + int(x.number%2)); j.blocks == nil {
			break
		}
		j.timeout = 4 * registrationLease
		h.markRivals(j.name)
		for layer := range layerCount {
			for i, block := range j.blocks[:positionCount] {
				for cell := range h.layout.shares {
					h.memory[h.layout.pageOf(layer, block, cell)] = contentOf(j.name, layer, i, cell)
				}
			}
		}
		h.begin(j, &register.Finished{
			Request: []byte(j.name + "-00000002"), Blocks: []geometry.Blocks{{Logical: j.blocks, End: positionCount}},
		})
		return
	case *healBody:
		h.failing = 0
	case *forgetBody:
		h.forgetUntil = h.now.Add(x.span)
	case *refuseBody:
		h.refuseUntil, h.refusal = h.now.Add(x.span), x.number%refusalKinds
	case *flakyBody:
		h.flakyUntil, h.flaky = h.now.Add(x.span), flakiness(x.number%flakinessCount)
	case *loseBody:
		h.loseWriter(x.nth, out)
	case *unlinkBody:
		h.loseLinks(x.nth)
	case *astrayBody:
		j.name = requestName("a", x.number)
		at := machine.PlainRank{Host: producerOf(x.number), Port: sidePort, Stages: 1}
		at.Ranks = h.shape.ranksOf(at.Host)
		if at.Rank = at.Ranks; x.number/2%2 == 0 {
			at.Stage, at.Rank = 1, 0
		}
		addr := at.Addr()
		h.begin(j, &register.Expect{
			Request: []byte(j.name + "-00000001"), Producers: []register.Peer{{Host: addr.Host, InitPort: addr.Port, Port: addr.Port}},
			Timeout: effects.Second,
		})
		return
	case *cancelBody:
		h.callGateway(out, &subject{}, func(o *machine.Effects) { h.g.CancelHellos(o) })
		h.verifyHellosCancelled(out)
	case *abortBody:
		var open []effects.Ticket
		for i := range h.jobs {
			if x := &h.jobs[i]; !x.ended && !x.required {
				open = append(open, x.ticket)
			}
		}
		if len(open) > 0 {
			h.events = append(h.events, &effects.Command{Ticket: e.Ticket, Body: &engine.Abort{Target: open[int(x.nth)%len(open)]}})
			return
		}
	}
	out.Deliver(effects.Deliver{Ticket: e.Ticket}) // There are no free blocks, or there is nothing to abort.
}

func (h *host) begin(j job, body effects.CommandBody) {
	h.jobs = append(h.jobs, j)
	h.events = append(h.events, &effects.Command{Ticket: j.ticket, Body: body})
}

// takeBlocks takes n free blocks, or none.
func (h *host) takeBlocks(n int) []uint32 {
	if len(h.free) < n {
		return nil
	}
	blocks := slices.Clone(h.free[:n])
	h.free = slices.Clone(h.free[n:])
	return blocks
}

// peersOf returns the ranks of a producer as the rank's commands name them.
func (h *host) peersOf(producer string) (all []register.Peer) {
	n := h.shape.ranksOf(producer)
	for rank := range n {
		all = append(all, peerAt(producer, sidePort, rank, n))
	}
	return all
}

// peerAt returns a rank of a producer as the rank's commands name it.
func peerAt(host string, port uint16, rank, ranks uint32) register.Peer {
	at := machine.PlainRank{Host: host, Port: port, Stages: 1, Rank: rank, Ranks: ranks}.Addr()
	return register.Peer{Host: at.Host, InitPort: at.Port, Port: at.Port}
}
