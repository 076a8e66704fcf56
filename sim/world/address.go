package world

import (
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// addresses say where nodes listen, on each channel, and who listens there. They are the same in all runs.
type addresses struct {
	hosts []string
	nodes map[string]int32 // by host
}

var allAddresses = sync.OnceValue(func() *addresses {
	a := &addresses{nodes: map[string]int32{}}
	for i := range int32(plan.NodesMax) {
		host := "n" + strconv.Itoa(int(i)) + "."
		if i < confusable {
			host = "h1111111"[:2+i]
		}
		a.hosts, a.nodes[host], a.nodes[secondHost(host)] = append(a.hosts, host), i, i
	}
	return a
})

// confusable is how many nodes have hosts and ports that join to the same text, "h1"+"11" and "h11"+"1": a machine
// must compare both.
const confusable = 7

// AddressOf is where a node listens on a channel.
func AddressOf(node int32, ch effects.Channel) effects.Addr {
	return effects.Addr{Host: allAddresses().hosts[node], Port: portOf(node, ch)}
}

func portOf(node int32, ch effects.Channel) uint16 {
	if node < confusable && ch <= effects.ChannelDone {
		i := int(node)
		return [...]uint16{
			effects.ChannelInit:  uint16(pow10(5-i) / 9),
			effects.ChannelAlloc: uint16(2 * pow10(4-i)),
			effects.ChannelDone:  uint16(3 * pow10(4-i)),
		}[ch]
	}
	return uint16(20_000 + 16*node + int32(ch))
}

func pow10(n int) int {
	v := 1
	for range max(n, 1) {
		v *= 10
	}
	return v
}

// Addr is where n listens on a channel, if it does.
func (n *Node) Addr(ch effects.Channel) effects.Addr { return AddressOf(n.ID, ch) }

// SecondOf is where a node listens, too, in a life that has moved: who was told of it finds nobody there in the next.
func SecondOf(node int32, ch effects.Channel) effects.Addr {
	a := AddressOf(node, ch)
	a.Host = secondHost(a.Host)
	return a
}

func secondHost(host string) string { return "m" + host }

// At is the node that has an address for a channel, whether it listens there or not; nil: none.
func (w *World) At(a effects.Addr, ch effects.Channel) *Node {
	// Host and port count as a pair.
	i, ok := allAddresses().nodes[a.Host]
	if !ok || int(i) >= len(w.Nodes) || a.Port != portOf(i, ch) {
		return nil
	}
	n, second := w.Nodes[i], a.Host != allAddresses().hosts[i]
	if second != n.Moved && (second || ch == effects.ChannelDone) {
		return nil // Hellos come to the first one in all lives.
	}
	return n
}

// Meant is the node that has a host in one of its lives, whether anybody has it now or not; -1: none.
func Meant(host string) int32 {
	if i, ok := allAddresses().nodes[host]; ok {
		return i
	}
	return -1
}

// The outsider of a system listens under a name of its own.
const (
	OutsiderHost = "plain"
	EnginesHost  = Engines
)

// ChannelDispatch is where PD's decode engines are told, by a proxy of somebody's own, that a request of prefill is
// there: a question with the request's name as its body, to [Engines]. The answer, empty, says that the engine was told
// or is down. Whoever tells an engine too early has it find less than it wants.
const ChannelDispatch effects.Channel = 255

// Engines is the node that [Boot.Addr] takes for the engines of all decodes, which know whose a request is.
const Engines = "engines"
