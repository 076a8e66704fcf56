package rank

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A plain LMCache sender asks for as many pages as its prefill has chunks, in one message: nobody splits that for it.
func TestPlainBatches(t *testing.T) {
	for _, c := range []struct {
		keys    int
		refused bool
	}{{1, false}, {512, false}, {4096, false}, {4097, true}} {
		r, err := New(Config{
			Role: RoleReceiver, Planes: []Plane{{Name: "hccl"}},
			Common: Common{Layout: layout, Leased: true, Bearer: true},
			Memory: Memory{Pages: 5000},
			Peers:  Peers{LocalID: "r"},
		}, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		m := protocol.AllocRequest{Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: 4}
		for i := range c.keys {
			m.Keys = append(m.Keys, fmt.Appendf(nil, "org/a-model-with-a-long-name@8@3@%064x@half", i+1))
		}
		var out effects.Effects
		r.Step(0, &effects.Received{Conn: 1, Channel: effects.ChannelAlloc, Request: 1, Body: m.Append(nil)}, &out)
		var answered *effects.Reply
		for i := range out.Len() {
			if e, ok := out.At(i).(*effects.Reply); ok {
				answered = e
			}
		}
		if answered == nil {
			t.Fatalf("%d keys were not answered", c.keys)
		}
		if c.refused {
			if len(answered.Body) != 0 {
				t.Errorf("%d keys are answered %q, want an empty frame", c.keys, answered.Body)
			}
			continue
		}
		var reply protocol.AllocResponse
		if err := reply.Decode(answered.Body, nil); err != nil {
			t.Fatalf("%d keys: %v", c.keys, err)
		}
		pages := map[int64]bool{}
		for _, index := range reply.RemoteIndexes {
			pages[index] = true
		}
		if reply.AllocFailed || len(pages) != c.keys {
			t.Errorf("%d keys: failed is %v, with %d pages", c.keys, reply.AllocFailed, len(pages))
		}
	}
}
