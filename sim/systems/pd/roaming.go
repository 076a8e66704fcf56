package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// A sender of another implementation may have several addresses, and name a different one in each offer. The nodes that
// the simulator moves do so in some seeds: half of their offers name the other one of the node's two addresses for done
// messages and renewals. The node listens at both.

const (
	roamDraw     = 1 << 34 // of the draws of this file, which are labelled Identity
	roamPermille = 600
)

// roams reports whether an incarnation of a node names both of its addresses.
func (w *Cluster) roams(n *world.Node) bool {
	return !draw.IsFixed(w.Seed) && draw.Hash(w.Seed, draw.Identity, uint64(n.ID), roamDraw).ChancePermille(roamPermille)
}

// nameOtherAddress returns a message of a roaming sender as it is sent: half of the offers name the sender's other
// address. All attempts of an offer name the same one.
func (x *messageEncoder) nameOtherAddress(w *Cluster, n *world.Node, body []byte) []byte {
	m := &x.offer
	if !n.Roams || !protocol.MayHaveTag(body, protocol.TagPullReadyNotif, &WireLimits) || m.Decode(body, &WireLimits) != nil || !m.HasExt ||
		len(m.Keys) == 0 || !draw.Hash(w.Seed, draw.Identity, m.Ext.Operation, roamDraw+1).ChancePermille(500) {
		return body
	}
	other := func(ch effects.Channel) []byte {
		a := world.SecondAddressOf(n.ID, ch)
		if n.Moved {
			a = n.Addr(ch)
		}
		return protocol.Endpoint{Host: a.Host, Port: a.Port}.Append(nil)
	}
	m.SenderDoneURL = other(effects.ChannelDone)
	if len(m.Ext.Renew) > 0 {
		m.Ext.Renew = other(effects.ChannelInit)
	}
	x.roamed = m.Append(x.roamed[:0])
	return x.roamed
}
