package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// senderMessages are the messages that only their sender may send: lookups of chunks, and the messages that end the
// reading of chunks.
var senderMessages = []pd.SenderMessage{
	{
		Decode: func(b []byte, _ draw.Value) (s pd.DecodedMessage, ok bool) {
			var m protocol.AscendBatchedLookupAndGetMsg
			if m.Decode(b, &pd.WireLimits) != nil || !m.HasExt {
				return s, false
			}
			m.Ext.Version = pd.ProtoVersion
			return pd.DecodedMessage{From: &m.Ext.Incarnation, To: &m.Ext.To, Encode: func() []byte { return m.Append(nil) }}, true
		},
		HarmChannel: lookupChannel,
	},
	{
		Decode: func(b []byte, _ draw.Value) (s pd.DecodedMessage, ok bool) {
			var m protocol.AscendBatchedLookupAndGetDoneMsg
			if m.Decode(b, &pd.WireLimits) != nil || !m.HasExt {
				return s, false
			}
			m.Ext.Version = pd.ProtoVersion
			return pd.DecodedMessage{From: &m.Ext.Incarnation, To: &m.Ext.To, Encode: func() []byte { return m.Append(nil) }}, true
		},
		HarmChannel: lookupChannel,
	},
}

// lookupChannel returns the channel of lookups, and whether the node lends chunks.
func lookupChannel(to *world.Node) (effects.Channel, bool) {
	return effects.ChannelLookup, to.LendsChunks
}
