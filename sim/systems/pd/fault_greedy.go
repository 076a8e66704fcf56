package pd

import (
	"cmp"
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A greedy peer is a stranger that speaks our extensions under a new name, and is therefore an ordinary peer. The peer
// requests pages from a receiver again and again, each time as a new operation with a long deadline, and writes
// nothing. The peer may use no more than a peer's share of each table (S18).

// requestGreedily makes a greedy peer connect to a receiver. In a world in which all jobs belong to a single flow, the
// flow determines what the peer requests.
func (s stranger) requestGreedily() {
	w, n, d := s.w, s.n, s.d
	if !n.IsReceiver() || len(w.Jobs) == 0 {
		return
	}
	w.Result.CountFault(plan.FaultGreedyPeer)
	name := s.drawName()
	conn := s.conn()
	layout := InfoOf(n).Cfg.Layout
	if f := w.Flows.ExclusivePart(); f != nil {
		s.deliverMessage(conn, effects.ChannelInit, helloMessage(n, name, f.Geometry(w, n)))
		for i := range uint64(d.Rehash().Between(4, 12)) {
			x := draw.Hash(uint64(d), draw.Noise, 2, i)
			s.deliverMessage(conn+1+i, effects.ChannelRegister,
				f.StrangerRequest(w, n, protocol.UUID(name), protocol.UUID(nameForCaller(n, name)), i+1, x))
		}
		return
	}
	s.deliverMessage(conn, effects.ChannelInit, helloMessage(n, name, nil))
	for i := range uint64(d.Rehash().Between(4, 12)) {
		x := draw.Hash(uint64(d), draw.Noise, 2, i)
		j := &w.Jobs[x.Below(uint64(len(w.Jobs)))]
		m := protocol.AllocRequest{Keys: j.Keys[:1], Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
			LastChunkTokens: j.TokensOf(0), HasExt: true}
		if short, err := layout.WithTokens(m.LastChunkTokens); err == nil {
			m.Shape = short.Shape
		}
		m.Ext = protocol.AllocExt{Version: ProtoVersion, Incarnation: protocol.UUID(name), To: protocol.UUID(nameForCaller(n, name)),
			Operation: i + 1, Attempt: 1, PatienceNS: uint64(60 * effects.Second)}
		s.deliverMessage(conn+1+i, effects.ChannelAlloc, m.Append(nil))
	}
}

// drawName returns a name for a stranger that acts as an ordinary peer.
func (s stranger) drawName() (name effects.Incarnation) {
	binary.LittleEndian.PutUint64(name[:8], uint64(s.d)*0x9E3779B97F4A7C15|1)
	binary.LittleEndian.PutUint64(name[8:], uint64(s.w.Now))
	return name
}

// helloMessage returns the handshake message of a stranger under a new name.
func helloMessage(n *world.Node, name effects.Incarnation, geometry []uint64) []byte {
	layout := InfoOf(n).Cfg.Layout
	bytes, err := layout.PageBytes()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	m := protocol.HixlInitRequest{LocalID: []byte("greedy:1"), EngineID: []byte("greedy:1"), HasExt: true}
	m.Ext = protocol.HelloExt{ProtoMin: ProtoVersion, ProtoMax: ProtoVersion, Incarnation: protocol.UUID(name),
		Layout: layout, PageBytes: bytes, Caps: protocol.CapCommit, Geometry: geometry}
	return m.Append(nil)
}

// connectCrowd makes strangers connect to a receiver, up to twice as many as its limit for peers. The strangers send a
// handshake and nothing more.
func (s stranger) connectCrowd() {
	w, n, d := s.w, s.n, s.d
	if !n.IsReceiver() {
		return
	}
	w.Result.CountFault(plan.FaultHelloCrowd)
	limit := int(cmp.Or(InfoOf(n).Cfg.PeersMax, 16))
	for i := range uint64(d.Between(1, 2*limit)) {
		var name effects.Incarnation
		binary.LittleEndian.PutUint64(name[:8], uint64(draw.Hash(uint64(d), draw.Noise, 3, i))|1)
		binary.LittleEndian.PutUint64(name[8:], uint64(w.Now))
		s.deliverMessage(s.conn(), effects.ChannelInit, helloMessage(n, name, nil))
	}
}

// deliverMessage delivers a message of a greedy peer or of a stranger in a crowd.
func (s stranger) deliverMessage(conn uint64, channel effects.Channel, b []byte) {
	w, n := s.w, s.n
	w.Requests = append(w.Requests, world.Request{Node: n.ID, Incarnation: n.Incarnation, Channel: channel, IsNoise: true, At: w.Now})
	w.QueueForNode(n, 0, world.Delivery{Kind: world.KindReceived, A: conn, B: uint64(channel), C: uint64(len(w.Requests)),
		Body: w.CopyBody(b)})
}
