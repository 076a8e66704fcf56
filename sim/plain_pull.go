package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A plain sender in pull mode offers its chunks in the words of LMCache alone. Nothing ties what it offers
// to a life of it, or to a time, so it is refused: nothing of it may ever be read (rule M5).

// plainOffer offers the next batch.
func (w *cluster) plainOffer(i int, b *batch) {
	j := &w.jobs[i]
	layout := w.plan.Rank.Layout
	m := protocol.PullReadyNotif{
		Keys: j.keys[b.from:b.to], SenderID: []byte("plain:1"), SenderDoneURL: []byte("plain:1"),
		Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: j.tokensOf(b.to - 1),
	}
	m.PullID[0], m.PullID[1] = byte(j.request)+1, byte(j.plain.batch)
	if b.to-b.from == 1 {
		if short, err := layout.WithTokens(m.LastChunkTokens); err == nil {
			m.Shape = short.Shape
		}
	}
	for k := range m.Keys {
		m.SenderUUIDs = append(m.SenderUUIDs, protocol.UUID{1})
		m.SenderIndexes = append(m.SenderIndexes, int64(k))
	}
	w.plainSay(i, effects.ChannelAlloc, m.Append(nil))
}

// plainAnswered reads the answer as LMCache does.
func (w *cluster) plainAnswered(j *job, body []byte) {
	m := &w.oracles.truth.ack
	if len(body) == 0 {
		j.plain.stage = plainFailed
		return
	}
	switch err := m.Decode(body, &wireLimits); {
	case err != nil || m.HasExt:
		w.Fail("S10", "node %d answers the offer of a plain sender with what that cannot read: %v",
			oracle.Node(j.receiver), err)
	case !m.AllocFailed:
		w.Fail("S1", "node %d takes the offer of a plain sender, of whose pages nothing is known", oracle.Node(j.receiver))
	}
	j.plain.stage = plainDone // It gives up, as they do.
}
