package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A guest that had to go, and came back, is not believed to have begun an offer after what it was told before: that is
// not remembered any more, so what may be older is not read.
func TestReturningPeerKeepsWatermark(t *testing.T) {
	lim := protocol.DefaultLimits()
	r, err := New(Config{
		Role: RoleReceiver, Planes: []Plane{{Name: "hccl", Blob: []byte("b")}},
		Common: Common{Layout: layout, Leased: true},
		Memory: Memory{Pages: 4},
		Peers:  Peers{LocalID: "r", PeersMax: 1},
	}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out effects.Effects
	say := func(channel effects.Channel, body []byte) []byte {
		t.Helper()
		out.Reset()
		r.Step(effects.Time(effects.Second), &effects.Received{Conn: 1, Channel: channel, Request: 1, Body: body}, &out)
		for i := range out.Len() {
			if e, ok := out.At(i).(*effects.Reply); ok {
				return e.Body
			}
		}
		t.Fatal("no answer")
		return nil
	}
	hello := func(n byte) {
		who := effects.Incarnation{0xA0, n}
		m := protocol.HixlInitRequest{LocalID: []byte("p:1"), EngineID: []byte("p:1"), HasExt: true, Ext: protocol.HelloExt{
			ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(who), PageBytes: 32, Layout: layout}}
		say(effects.ChannelInit, m.Append(nil))
	}
	offer := func() effects.Code {
		t.Helper()
		who := effects.Incarnation{0xA0, 1}
		m := protocol.PullReadyNotif{
			PullID: protocol.PullID{1}, Keys: [][]byte{[]byte("m@1@0@a@half")},
			SenderID: []byte("x:3"), SenderDoneURL: []byte("x:3"),
			SenderUUIDs: []protocol.UUID{{}}, SenderIndexes: []int64{0}, Format: layout.Format, Shape: layout.Shape,
			Dtype: layout.Dtype, LastChunkTokens: 3, HasExt: true,
		}
		m.Shape.Dims[0]++ // Refused as of another layout.
		m.Ext = protocol.PullReadyExt{
			Version: 1, Incarnation: protocol.UUID(who), To: protocol.UUID(r.cfg.Key.InboundName(who)), Operation: 7, Attempt: 1,
			PatienceNS: 1e9, Grant: 5 << 16, GrantedNS: 1, LeaseNS: 60e9, Generations: []uint64{1},
		}
		var ack protocol.PullReadyDoneAck
		if err := ack.Decode(say(effects.ChannelAlloc, m.Append(nil)), &lim); err != nil {
			t.Fatal(err)
		}
		return effects.Code(ack.Ext.Code)
	}
	hello(1)
	if code := offer(); code != effects.Mismatch {
		t.Fatalf("refused as %v", code)
	}
	hello(2)
	hello(1)
	if code := offer(); code != effects.Expired {
		t.Errorf("who came back is answered %v", code)
	}
}
