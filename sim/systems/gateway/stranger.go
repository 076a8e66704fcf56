package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A strangerProcess sends registrations in the names of engines that it invents, each from an agent of another name.
// Their side channels answer with metadata of another engine, or not at all. Three in four have side channels of their
// own, which answer with metadata that libnixl cannot load, or, now and then, with metadata that it can.
type strangerProcess struct {
	dialer
	boot     custom.Boot `snap:"share"`
	shape    shape       `snap:"share"`
	invented uint32
}

// A forgeBody has the stranger register in the name of a consumer that exists.
type forgeBody struct{ number uint32 }

// A floodBody has the stranger register as many invented engines.
type floodBody struct{ number uint32 }

func (*floodBody) IsCommand() {}
func (*forgeBody) IsCommand() {}

func newStranger(b custom.Boot) (effects.Machine, error) {
	return &strangerProcess{boot: b, shape: shapeOf(b.Plan)}, nil
}

// Deadline returns when the stranger has something to do without an event.
func (x *strangerProcess) Deadline() (effects.Time, bool) { return x.connDeadline() }

// Step consumes one event.
func (x *strangerProcess) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	x.handleConnEvent(now, ev, out)
	to := x.boot.Addr(hostName, port)
	switch e := ev.(type) {
	case *effects.Command:
		q, p := protocol.NixlMetadataRequest{}, purpose{kind: purposeFrontQuery}
		switch b := e.Body.(type) {
		case *floodBody:
			p.id = uint64(b.number%12 + 1)
		case *forgeBody:
			p.id, p.name = 1, consumers[int(b.number)%len(consumers)]
		}
		x.send(now, out, to, &frame{kind: frameQuery, id: uint64(machine.Front), body: q.Append(nil)}, p)
		out.Deliver(effects.Deliver{Ticket: e.Ticket})
	case *effects.Received:
		var f frame
		engine, agent := stranger, stranger
		answers := x.invented%2 == 0 // Otherwise its side channel refuses queries.
		if f.decode(e.Body) && f.kind == frameQuery && f.id > inventedPorts {
			engine = inventedName(uint32(f.id - inventedPorts))
			if agent, answers = engine, true; f.id%5 != 0 {
				agent = unloadable + agent
			}
		}
		var answer []byte
		if answers {
			m := memory{engineBase, blockCount, x.shape.sharesOf(stranger)}.metadata(engine, agent)
			h := protocol.NixlHello{Hash: []byte(compatibilityHash), Metadata: m.Append(nil)}
			answer = h.Append(nil)
		}
		out.Reply(effects.Reply{Request: e.Request, Body: out.Cut(append(out.Arena(), answer...))})
	default: // A tick, or an event of a connection.
	}
	limits := protocol.DefaultLimits()
	for _, c := range x.takeCompletions() {
		var h protocol.NixlHello
		var m protocol.NixlMetadata
		if c.purpose.kind != purposeFrontQuery || h.Decode(c.body, &limits) != nil || m.Decode(h.Metadata, &limits) != nil {
			continue
		}
		for range c.purpose.id {
			x.invented++
			name := fmt.Sprintf("%s%d", stranger, x.invented)
			engine, host, at := name, stranger, uint32(sidePort)
			switch {
			case c.purpose.name != "":
				engine, host = c.purpose.name, c.purpose.name
			case x.invented%4 != 0:
				name = inventedName(x.invented)
				engine, at = name, inventedPorts+x.invented
			}
			r := protocol.PushRegistration{
				RequestID: []byte(name + "-00000004"), EngineID: []byte(engine), Host: []byte(host), Port: at, TPSize: 1,
				Blocks: [][]uint64{x.blocks()}, Remote: protocol.PushProducer{EngineID: []byte(hostName), PPSize: 1},
			}
			f := &frame{kind: frameNote, to: string(m.Agent), from: name, body: r.Append(nil)}
			x.send(now, out, to, f, purpose{kind: purposeHeartbeat})
		}
	}
}

// inventedPorts is below the port of each side channel of an invented engine.
const inventedPorts = 100

// inventedName returns the name of an invented engine with a side channel, and of its agent.
func inventedName(number uint32) string { return fmt.Sprintf("%s.%d", stranger, number) }

// blocks returns the blocks of the next registration. Some are more than the node accepts in a registration.
func (x *strangerProcess) blocks() []uint64 {
	n := 1
	if most := protocol.DefaultLimits().BlockCount; x.invented%3 == 0 && x.shape.blocksMax < most {
		n = x.shape.blocksMax + int(x.invented/3%2)
	}
	return make([]uint64, n)
}
