package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// words are what only their senders may say: a false withdrawal would end another's registration, a false word on
// requests would have them given up, and a false registration would have them written elsewhere.
var words = []pd.Word{
	{Harm: toProducer, Read: func(b []byte, _ draw.Of) (s pd.Said, ok bool) {
		var m protocol.PushWithdrawal
		if m.Decode(b, &pd.WireLimits) != nil {
			return s, false
		}
		m.Version = pd.ProtoVersion
		return pd.Said{From: &m.Incarnation, To: &m.To, Write: func() []byte { return m.Append(nil) }}, true
	}},
	{Harm: toProducer, Read: func(b []byte, d draw.Of) (s pd.Said, ok bool) {
		var m protocol.PushKeep
		if m.Decode(b, &pd.WireLimits) != nil {
			return s, false
		}
		if m.Version = pd.ProtoVersion; d.Again().Permille(500) {
			m.Keep, m.Skip = m.Skip, m.Keep
		}
		return pd.Said{From: &m.Incarnation, To: &m.To, Write: func() []byte { return m.Append(nil) }}, true
	}},
	{Harm: toProducer, Read: func(b []byte, _ draw.Of) (s pd.Said, ok bool) {
		var m protocol.PushRegistration
		if m.Decode(b, &pd.WireLimits) != nil || !m.HasExt {
			return s, false
		}
		m.Ext.Version = pd.ProtoVersion
		return pd.Said{From: &m.Ext.Incarnation, To: &m.Ext.To, Write: func() []byte { return m.Append(nil) }}, true
	}},
}

func toProducer(*world.Node) (effects.Channel, bool) { return effects.ChannelRegister, true }
