package gateway

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// This file has the part of a plain engine into which the node writes: a consumer.

// A want is a request that a consumer has registered for. Each rank of the engine registers by itself.
type want struct {
	ticket    effects.Ticket
	name      string
	blocks    []uint32
	required  bool
	sent      [ranksLimit]bool
	told      [ranksLimit]bool
	ended     bool         // its router has given it up, or it has its blocks
	repeats   effects.Time // when the registration arrives once more, though it is over; 0: never
	until     effects.Time // when its router gives it up
	heartbeat effects.Time // the next one
}

// A foreseen request is one that the engine will register for.
type foreseen struct {
	name  string
	until effects.Time
}

// addWant adds a request that the engine registers for, and reports false if there are no blocks for it.
func (e *plainEngine) addWant(ticket effects.Ticket, number uint32) bool {
	name := nameOfWanted(number)
	e.foreseen = slices.DeleteFunc(slices.Clone(e.foreseen), func(f foreseen) bool { return f.name == name })
	w := want{ticket: ticket, name: name, until: e.now.Add(routerTimeout), heartbeat: e.now,
		required: mustSucceed(e.boot.Plan, number, "want", "lend")}
	// It has the beginning of the prompt, and wants the last blocks. Blocks are never used twice.
	n := positionCount - int(number%positionCount)
	first := 0
	for i := range e.wants {
		first += len(e.wants[i].blocks)
	}
	if first+n > engineBlocks || e.left {
		return false
	}
	for i := range uint32(n) { // From the end, where the node's own cache has no blocks.
		w.blocks = append(w.blocks, engineBlocks-1-uint32(first)-i)
	}
	e.wants = append(e.wants, w)
	return true
}

// sendForeseen sends heartbeats for the requests that the engine will register for.
func (e *plainEngine) sendForeseen(out *effects.Effects) {
	if len(e.foreseen) == 0 {
		return
	}
	e.foreseen = slices.DeleteFunc(slices.Clone(e.foreseen), func(f foreseen) bool { return f.until <= e.now })
	if len(e.foreseen) == 0 || e.nextHeartbeat > e.now {
		return
	}
	e.nextHeartbeat = e.now.Add(heartbeatPeriod)
	if e.front == "" {
		e.queryFront(out)
		return
	}
	var m protocol.PushHeartbeat
	for _, f := range e.foreseen {
		m.RequestIDs = append(m.RequestIDs, []byte(f.name+"-00000003"))
	}
	e.toNode(out, 0, &frame{kind: frameNote, to: e.front, body: m.Append(nil)}, purpose{kind: purposeForeseen})
}

// advanceWant does for a request what has become possible.
func (e *plainEngine) advanceWant(i int, out *effects.Effects) {
	w := &e.wants[i]
	switch {
	case w.repeats != 0 && w.repeats <= e.now:
		w.repeats = 0
		for rank := range e.agents {
			e.register(w, rank, purpose{kind: purposeHeartbeat}, out)
		}
		return
	case w.ended:
		return
	case w.until <= e.now:
		w.ended = true
		if w.required {
			observe(out, factTold, effects.Expired, fmt.Sprintf("%s is told nothing of %s, which must succeed", e.name, w.name))
		}
		out.Deliver(effects.Deliver{Ticket: w.ticket, Code: effects.Expired})
		return
	case w.heartbeat > e.now:
		return
	}
	w.heartbeat = e.now.Add(heartbeatPeriod)
	if e.front == "" {
		e.queryFront(out)
		return
	}
	complete := true
	for rank := range e.agents {
		if w.sent[rank] {
			continue
		}
		complete, w.sent[rank] = false, true
		e.register(w, rank, purpose{kind: purposeRegistration, id: uint64(i*ranksLimit + rank)}, out)
		if e.boot.Seed%3 == 0 { // Some engines repeat what they send.
			e.register(w, rank, purpose{kind: purposeHeartbeat}, out)
		}
	}
	if !complete {
		return
	}
	m := protocol.PushHeartbeat{RequestIDs: [][]byte{[]byte(w.name + "-00000003")}}
	e.toNode(out, 0, &frame{kind: frameNote, to: e.front, body: m.Append(nil)}, purpose{kind: purposeHeartbeat})
}

// register sends the registration of a request by a rank to the node's front.
func (e *plainEngine) register(w *want, rank int, p purpose, out *effects.Effects) {
	m := protocol.PushRegistration{
		RequestID: []byte(w.name + "-00000003"), EngineID: []byte(e.name), Host: []byte(e.name), Port: sidePort,
		TPSize: uint32(len(e.agents)), Remote: protocol.PushProducer{EngineID: []byte(hostName), PPSize: 1},
	}
	var ids []uint64
	for _, block := range w.blocks {
		ids = append(ids, uint64(block))
	}
	m.Blocks = [][]uint64{ids}
	e.sendNote(out, rank, &frame{kind: frameNote, to: e.front, body: m.Append(nil)}, p)
}

// storePage stores a page that the node writes. The block must belong to a request that the engine has registered for.
func (e *plainEngine) storePage(rank int, address uint64, text string, out *effects.Effects) {
	page, ok := e.layout.locate(address)
	block := e.layout.blockOf(page)
	if !ok || !slices.ContainsFunc(e.wants, func(w want) bool { return slices.Contains(w.blocks, block) }) {
		observe(out, factWritten, effects.Invalid, fmt.Sprintf("%q is written to address %#x of %s, which it has not registered", text,
			address, e.name))
		return
	}
	e.memory[rank][page] = text
	observe(out, factWritten, effects.OK, "")
}

// handleDone judges what a rank of the engine is told to have. The engine has its blocks when all ranks were told.
func (e *plainEngine) handleDone(rank int, request string, out *effects.Effects) {
	base := string(protocol.TrimRequestSuffix([]byte(request)))
	i := slices.IndexFunc(e.wants, func(w want) bool { return w.name == base })
	if i < 0 || e.wants[i].told[rank] {
		observe(out, factTold, effects.Invalid, fmt.Sprintf("rank %d of %s is told that it has %s, once too often", rank, e.name, request))
		return
	}
	w := &e.wants[i]
	w.told[rank] = true
	first := e.shape.firstCell(e.name, uint32(rank))
	for layer := range layerCount {
		for k, block := range w.blocks {
			for share := range e.layout.shares {
				got := e.memory[rank][e.layout.pageOf(layer, block, share)]
				if want := contentOf(base, layer, positionCount-len(w.blocks)+k, first+share); got != want {
					observe(out, factTold, effects.Invalid, fmt.Sprintf("rank %d of %s is told that it has %s, and its block %d holds %q, not %q",
						rank, e.name, base, block, got, want))
					return
				}
			}
		}
	}
	observe(out, factTold, effects.OK, "")
	for rank := range e.agents {
		if !w.told[rank] {
			return
		}
	}
	if e.boot.Seed%2 == 0 {
		w.repeats = e.now.Add(effects.Duration(e.boot.Seed/2%3000) * effects.Millisecond)
	}
	if !w.ended {
		w.ended = true
		out.Deliver(effects.Deliver{Ticket: w.ticket})
	}
}
