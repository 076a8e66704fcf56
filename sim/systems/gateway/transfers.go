package gateway

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
)

// This file models the data plane of the node: links to consumers, and the writes over them.

// settleTransfers ends the transfers and the links of an agent that is gone.
func (h *host) settleTransfers(a machine.Agent) {
	for _, corr := range sortedKeys(h.transfers) {
		t := h.transfers[corr]
		if t.agent != a {
			continue
		}
		delete(h.transfers, corr)
		if t.failed {
			h.events = append(h.events, &effects.Settled{Corr: corr, Code: effects.Faulted})
		} else {
			h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.PeerLost, Settled: true, At: h.now})
		}
	}
	for _, link := range sortedKeys(h.links) {
		if l := h.links[link]; l.route.Agent == a && a != 0 && !l.lost {
			l.lost = true
			h.links[link] = l
			h.events = append(h.events, &effects.LinkLost{Link: link, Peer: l.peer})
		}
	}
}

func (h *host) importLink(e *effects.Import) {
	x := &effects.Imported{Corr: e.Corr, Code: effects.Unreachable}
	if len(e.Blob) >= 8 {
		if r, ok := h.g.FindRoute(binary.BigEndian.Uint64(e.Blob)); ok && r.Incarnation == e.Peer {
			h.lastID++
			x.Code, x.Link = effects.OK, effects.Link(h.lastID)
			h.links[x.Link] = linkState{route: r, peer: e.Peer}
		}
	}
	h.events = append(h.events, x)
}

func (h *host) dropLink(link effects.Link) {
	for _, corr := range sortedKeys(h.transfers) {
		if t := h.transfers[corr]; t.peer == h.links[link].peer && !t.failed {
			delete(h.transfers, corr)
			h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.PeerLost, Settled: true, At: h.now})
		}
	}
	delete(h.links, link)
	h.events = append(h.events, &effects.Dropped{Link: link})
}

// startTransfer writes pages to a consumer, each by a write of its own.
func (h *host) startTransfer(e *effects.Transfer, out *effects.Effects) {
	l := h.links[e.Link]
	x := h.agents[l.route.Agent]
	if l.route.Regions == nil || x == nil || !x.made || x.closing {
		h.events = append(h.events, &effects.TransferDone{Corr: e.Corr, Code: effects.PeerLost, Settled: true, At: h.now})
		return
	}
	h.verifyReached(l.route.Agent, l.route.Name, out)
	t := &transfer{peer: l.peer, agent: l.route.Agent, left: len(e.Pairs), pairs: slices.Clone(e.Pairs), toAgent: l.route.Name}
	h.transfers[e.Corr] = t
	for i, pair := range t.pairs {
		h.verifyRead(pair.Local.Index, out)
		address, _ := l.route.Regions.LocatePage(pair.Remote.Index)
		f := &frame{kind: frameWrite, id: address, to: t.toAgent, from: h.nameOf(t.agent),
			body: []byte(h.memory[pair.Local.Index])}
		h.send(h.now, out, h.boot.Addr(nodeOf(t.toAgent), port), f, purpose{purposeWrite, uint64(e.Corr), fmt.Sprint(i)})
	}
}
