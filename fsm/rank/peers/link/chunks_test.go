package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A peer without our extensions shows by its first buffer whether its pages have all layers of a chunk while ours have
// one; one of any other size is told apart by what we would take.
func TestPagesOfPlainPeers(t *testing.T) {
	for _, c := range []struct {
		layers uint32
		sizes  []uint64
		chunks bool
		code   effects.Code
	}{
		{2, []uint64{2 * pageBytes}, true, effects.OK},
		{2, []uint64{2 * pageBytes, 2 * pageBytes}, true, effects.OK},
		{2, []uint64{pageBytes}, false, effects.OK},
		{2, []uint64{2 * pageBytes, pageBytes}, true, effects.Mismatch},
		{2, []uint64{3 * pageBytes}, false, effects.Mismatch},
		{0, []uint64{2 * pageBytes}, false, effects.Mismatch},
	} {
		r := newRig(t)
		r.links.cfg.Layers, r.links.cfg.Bearer = c.layers, true
		h := r.acquirePeer(receiverAddr)
		r.completeOpen(effects.OK)
		r.answerSend(func([]byte) []byte { // It says hello as LMCache does.
			m := protocol.HixlInitResponse{}
			return m.Append(nil)
		})
		r.completeImport(effects.OK, 5)
		r.answerSend(func([]byte) []byte {
			m := protocol.HixlMemInfoResponse{}
			for i, size := range c.sizes {
				m.Buffers = append(m.Buffers, protocol.BufferInfo{UUID: protocol.UUID{byte(i + 1)}, Size: 4 * size, PageSize: size})
			}
			return m.Append(nil)
		})
		if of := r.links.IncarnationOf(h); of.HasWholeChunks() != c.chunks {
			t.Errorf("%+v: chunks %v", c, of.HasWholeChunks())
		}
		if state, why := r.links.Outbound(h).State(); why != c.code || (state == Ready) != (c.code == effects.OK) {
			t.Errorf("%+v: state %d because of %v", c, state, why)
		}
	}
}
