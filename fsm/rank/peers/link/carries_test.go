package link

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/protocol"
)

// What a request may carry is the smaller of what both ends of the newest handshake said, and nothing where one says
// nothing. A hello has not a byte more where nothing is carried.
func TestCarriesIsTheSmallerOneOfOneIncarnation(t *testing.T) {
	r := newRig(t)
	r.links.cfg.Carries = 4096
	h := r.acquirePeer(receiverAddr)
	r.completeOpen(effects.OK)
	if !bytes.Contains(r.bodies[0], []byte("kvf_carries")) {
		t.Error("the hello does not say what we send")
	}
	for _, c := range []struct{ says, want uint32 }{
		{1 << 20, 4096}, {0, 0}, {4095, 4095}, {1<<32 - 1, 4096}, {32, 32},
	} {
		r.answerSend(func(answer []byte) []byte {
			if bytes.Contains(answer, []byte("kvf_carries")) {
				t.Error("an answer says that something may be carried, where nothing is")
			}
			var m protocol.HixlInitResponse
			if err := m.Decode(answer, &r.links.cfg.Wire); err != nil {
				t.Fatal(err)
			}
			m.Ext.Carries = c.says
			return m.Append(nil)
		})
		r.completeImport(effects.OK, 6)
		r.answerSend(nil)
		if got := r.links.IncarnationOf(h).CarryBytes(); got != c.want {
			t.Errorf("to one who takes %d, %d bytes are carried; want %d", c.says, got, c.want)
		}
		r.runStep(func(v *env.Env) { r.links.FailPeer(v, h, effects.PeerLost, effects.Why{}) })
		r.runNextTimer()
		r.completeOpen(effects.OK)
	}
}
