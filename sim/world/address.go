package world

import (
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// addressTable holds the hosts of all nodes, which are the same in all runs.
type addressTable struct {
	hosts []string
	nodes map[string]int32 // by host
}

var nodeAddresses = sync.OnceValue(func() *addressTable {
	a := &addressTable{nodes: map[string]int32{}}
	for i := range int32(plan.NodesMax) {
		host := "n" + strconv.Itoa(int(i)) + "."
		if i < confusableNodes {
			host = "h1111111"[:2+i]
		}
		a.hosts, a.nodes[host], a.nodes[secondHost(host)] = append(a.hosts, host), i, i
	}
	return a
})

// confusableNodes is the number of nodes with hosts and ports that join to the same text, such as "h1"+"11" and
// "h11"+"1". A machine must compare both.
const confusableNodes = 7

// AddressOf returns the address at which a node listens on a channel.
func AddressOf(node int32, ch effects.Channel) effects.Addr {
	return effects.Addr{Host: nodeAddresses().hosts[node], Port: portOf(node, ch)}
}

func portOf(node int32, ch effects.Channel) uint16 {
	if node < confusableNodes && ch <= effects.ChannelDone {
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

// Addr returns the address of n on a channel, whether n listens there or not.
func (n *Node) Addr(ch effects.Channel) effects.Addr { return AddressOf(n.ID, ch) }

// SecondAddressOf returns the second address of a node, at which the node listens in every incarnation that has moved.
// In the next incarnation nothing listens there.
func SecondAddressOf(node int32, ch effects.Channel) effects.Addr {
	a := AddressOf(node, ch)
	a.Host = secondHost(a.Host)
	return a
}

func secondHost(host string) string { return "m" + host }

// NodeAt returns the node that has an address on a channel, whether the node listens there or not, or nil.
func (w *World) NodeAt(a effects.Addr, ch effects.Channel) *Node {
	// Host and port must match as a pair.
	i, ok := nodeAddresses().nodes[a.Host]
	if !ok || int(i) >= len(w.Nodes) || a.Port != portOf(i, ch) {
		return nil
	}
	n, second := w.Nodes[i], a.Host != nodeAddresses().hosts[i]
	if n.Roams {
		return n
	}
	if second != n.Moved && (second || ch == effects.ChannelDone) {
		return nil // Hellos arrive at the first address in all incarnations.
	}
	return n
}

// NodeOfHost returns the node that has the host in any incarnation, even if the host is not in use now, or -1.
func NodeOfHost(host string) int32 {
	if i, ok := nodeAddresses().nodes[host]; ok {
		return i
	}
	return -1
}

// The outsider of a system and the engines listen on hosts of their own.
const (
	OutsiderHost = "plain"
	EnginesHost  = EnginesNode
)

// ChannelDispatch is the channel on which a user's proxy notifies PD's decode engines of a prefill request. The proxy
// sends a request to [Engines] with the name of the prefill request as its body. The empty reply says that the engine
// was notified, or that the engine is down. An engine that is notified too early finds fewer chunks than expected.
const ChannelDispatch effects.Channel = 255

// EnginesNode is the node name by which [Boot.Addr] finds the engines of all decodes. The engines know to which engine
// a request belongs.
const EnginesNode = "engines"
