package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A plain sender in pull mode offers its chunks in the words of LMCache alone. Nothing ties what it offers
// to a life of it, or to a time, so it is refused: nothing of it may ever be read (rule M5).

// plainOffer offers the next batch.
func (w *Cluster) plainOffer(i int, b *Batch) {
	j := &w.Jobs[i]
	layout := w.Plan.Rank.Layout
	m := protocol.PullReadyNotif{
		Keys: j.Keys[b.From:b.To], SenderID: []byte("plain:1"), SenderDoneURL: []byte("plain:1"),
		Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: j.TokensOf(b.To - 1),
	}
	m.PullID[0], m.PullID[1] = byte(j.request)+1, byte(j.plain.batch)
	if b.To-b.From == 1 {
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
func (w *Cluster) plainAnswered(j *Job, body []byte) {
	m := &w.words.ack
	if len(body) == 0 {
		j.plain.stage = plainFailed
		return
	}
	switch err := m.Decode(body, &WireLimits); {
	case err != nil || m.HasExt:
		w.Fail("S10", "node %d answers the offer of a vanilla sender with what that cannot read: %v",
			oracle.Node(j.Receiver), err)
	case !m.AllocFailed:
		w.Fail("S1", "node %d takes the offer of a vanilla sender, of whose pages nothing is known", oracle.Node(j.Receiver))
	}
	j.plain.stage = plainDone // It gives up, as they do.
}
