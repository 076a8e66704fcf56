package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A plain sender in pull mode offers chunks with LMCache's messages only. Nothing ties the offer to an incarnation of
// the sender or to a time, so the receiver must refuse the offer, and no page of the offer may ever be read (rule M5).

// offerBatch offers the chunks of the next batch.
func (s *plainSender) offerBatch(w *Cluster, j *Job, b *Batch) {
	layout := w.Setup.Rank.Layout
	m := protocol.PullReadyNotif{
		Keys: j.Keys[b.From:b.To], SenderID: []byte("plain:1"), SenderDoneURL: []byte("plain:1"),
		Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: j.TokensOf(b.To - 1),
	}
	m.PullID[0], m.PullID[1] = byte(j.requestNumber)+1, byte(s.batch)
	if b.To-b.From == 1 {
		if short, err := layout.WithTokens(m.LastChunkTokens); err == nil {
			m.Shape = short.Shape
		}
	}
	for k := range m.Keys {
		m.SenderUUIDs = append(m.SenderUUIDs, protocol.UUID{1})
		m.SenderIndexes = append(m.SenderIndexes, int64(k))
	}
	s.sendMessage(w, j, effects.ChannelAlloc, m.Append(nil))
}

var checkPlainOffer = oracle.NewCheck("S1", "offers of vanilla senders, which are refused")

// handleOfferReply decodes the reply to an offer as LMCache does. Any reply but a refusal fails the run.
func (s *plainSender) handleOfferReply(w *Cluster, j *Job, body []byte) {
	w.CountJudged(checkPlainReply, checkPlainOffer)
	m := &w.decodeBuffers.ack
	if len(body) == 0 {
		s.stage = plainFailed
		return
	}
	switch err := m.Decode(body, &WireLimits); {
	case err != nil || m.HasExt:
		w.FailCheck(checkPlainReply, "node %d replies to the offer of a vanilla sender with a message that the sender cannot decode: %v",
			oracle.Node(j.Receiver), err)
	case !m.AllocFailed:
		w.FailCheck(checkPlainOffer, "node %d accepts the offer of a vanilla sender, which has no incarnation and no lease",
			oracle.Node(j.Receiver))
	}
	s.stage = plainDone // The sender gives up, as LMCache does.
}
