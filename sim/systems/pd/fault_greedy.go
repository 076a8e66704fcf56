package pd

import (
	"cmp"
	"encoding/binary"
	"slices"

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
		if w.ProofOf(s.proof).Realm != 0 && s.actAsForeigner(conn+1+i, j, &m, x.Rehash()) {
			continue
		}
		s.deliverMessage(conn+1+i, effects.ChannelAlloc, m.Append(nil))
	}
}

// actAsForeigner sends what a peer of another trust domain sends to spoil the chunks of the nodes, or to see them: a
// request that carries a false chunk, or a request for the chunks of a job. The result is false if it sends nothing. The
// false chunk consists of zeros, so that its pages hold no stamps.
func (s stranger) actAsForeigner(conn uint64, j *Job, m *protocol.AllocRequest, d draw.Value) bool {
	n := s.n
	to := protocol.UUID(nameForCaller(n, effects.Incarnation(m.Ext.Incarnation)))
	switch d.Below(4) {
	case 0:
		query := protocol.CacheQueryRequest{Keys: m.Keys, HasExt: true, Ext: protocol.CacheQueryExt{Version: ProtoVersion,
			Incarnation: m.Ext.Incarnation, To: to, Operation: m.Ext.Operation, Attempt: 1}}
		if slices.Contains(n.Listens, effects.ChannelQuery) {
			s.deliverMessage(conn, effects.ChannelQuery, query.Append(nil))
			return true
		}
	case 1:
		get := protocol.AscendBatchedLookupAndGetMsg{LookupID: []byte("greedy"), ReceiverID: []byte("greedy:1"), Keys: m.Keys,
			PullMode: true, HasExt: true, Ext: protocol.P2PGetExt{Version: ProtoVersion, Incarnation: m.Ext.Incarnation, To: to,
				Operation: m.Ext.Operation, Attempt: 1}}
		if slices.Contains(n.Listens, effects.ChannelLookup) {
			s.deliverMessage(conn, effects.ChannelLookup, get.Append(nil))
			return true
		}
	default:
		bytes := InfoOf(n).Cfg.Layout.TokenBytes() * uint64(m.LastChunkTokens)
		if bytes <= uint64(InfoOf(n).Cfg.Carries) {
			m.Ext.Carried = make([]byte, bytes)
			s.w.maybeGetOfDomain(n, j, s.w.ProofOf(s.proof).Realm, d.Rehash())
		}
	}
	return false
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
