package register

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// senderMessages are the messages that only their sender may send. A forged withdrawal would end the registration of
// another peer, a forged PushKeep would make requests be abandoned, and a forged registration would redirect the
// writes.
var senderMessages = []pd.SenderMessage{
	{HarmChannel: registerChannel, Decode: func(b []byte, _ draw.Value) (s pd.DecodedMessage, ok bool) {
		var m protocol.PushWithdrawal
		if m.Decode(b, &pd.WireLimits) != nil {
			return s, false
		}
		m.Version = pd.ProtoVersion
		return pd.DecodedMessage{From: &m.Incarnation, To: &m.To, Encode: func() []byte { return m.Append(nil) }}, true
	}},
	{HarmChannel: registerChannel, Decode: func(b []byte, d draw.Value) (s pd.DecodedMessage, ok bool) {
		var m protocol.PushKeep
		if m.Decode(b, &pd.WireLimits) != nil {
			return s, false
		}
		if m.Version = pd.ProtoVersion; d.Rehash().ChancePermille(500) {
			m.Keep, m.Skip = m.Skip, m.Keep
		}
		return pd.DecodedMessage{From: &m.Incarnation, To: &m.To, Encode: func() []byte { return m.Append(nil) }}, true
	}},
	{HarmChannel: registerChannel, Decode: func(b []byte, _ draw.Value) (s pd.DecodedMessage, ok bool) {
		var m protocol.PushRegistration
		if m.Decode(b, &pd.WireLimits) != nil || !m.HasExt {
			return s, false
		}
		m.Ext.Version = pd.ProtoVersion
		return pd.DecodedMessage{From: &m.Ext.Incarnation, To: &m.Ext.To, Encode: func() []byte { return m.Append(nil) }}, true
	}},
}

// strangerGeometry returns the geometry of an unknown peer that claims to be the first rank of a consumer.
func strangerGeometry(w *pd.Cluster, _ *world.Node) []uint64 {
	s := drawShape(w.SourcePlan)
	return ops.EncodeGeometry(s.geometryOf(0))
}

// strangerRegistration returns the registration of a greedy unknown peer. The registration has no pages, names a
// request that no engine finishes, and has a long timeout, and therefore only occupies a row of the table.
func strangerRegistration(w *pd.Cluster, _ *world.Node, me, to protocol.UUID, operation uint64, _ draw.Value) []byte {
	m := protocol.PushRegistration{
		RequestID: pd.AppendNumber([]byte("cmpl-greedy-"), int(operation)), EngineID: []byte("greedy"),
		Host: []byte("greedy"), Port: 1, TPSize: 1, HasExt: true,
		Remote: protocol.PushProducer{Host: []byte("greedy"), Port: 1, TPSize: 1, PPSize: 1},
		Ext: protocol.PushRegistrationExt{
			Version: pd.ProtoVersion, Incarnation: me, To: to, Operation: operation, Attempt: 1,
			GrantedNS: w.Now, LeaseNS: uint64(60 * effects.Second), PatienceNS: uint64(60 * effects.Second),
		},
	}
	return m.Append(nil)
}

// registerChannel returns the channel on which ranks receive these messages.
func registerChannel(*world.Node) (effects.Channel, bool) { return effects.ChannelRegister, true }
