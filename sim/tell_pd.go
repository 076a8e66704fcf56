package sim

import "github.com/kvferry/kvferry/sim/world"

// What ranks say that nobody answers.

// notice is a word to the proxy: how many chunks of a request are missing.
func (w *cluster) notice(n *world.Node, body []byte, taken bool) (request, missing uint64, ok bool) {
	m, err := readNotice(body)
	if err != nil {
		w.Fail("contract", "node %d tells the proxy what it cannot read: %v", n.It(), err)
		return 0, 0, false
	}
	w.oracles.onNotice(n, &m, taken)
	return w.jobNamed(m.RequestID), uint64(m.Failed), true
}

// endTold is the word to a sender that an offer of its has ended.
func (w *cluster) endTold(n *world.Node, body []byte, taken bool) bool {
	m := &w.oracles.truth.done
	if err := m.Decode(body, &wireLimits); err != nil {
		w.Fail("contract", "node %d tells a sender of an end what it cannot read: %v", n.It(), err)
		return false
	}
	w.oracles.onEndTold(n, m, taken)
	return true
}
