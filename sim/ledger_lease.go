package sim

// submitting checks, where the access leaves the node, that the machine still allows it: by the
// node's own clock, whatever the driver believes it has checked (S24).
func (l *ledger) submitting(n *node, t *transfer) {
	if now := l.w.clock(n); now > t.notAfter {
		l.w.fail("S24", "node %d submits a write of transfer %d %d ns after the instant that its lease allows", n.id, t.id, now-t.notAfter)
	}
}
