//go:build cgo && linux

package hccl

// A targetEnd is the target's end of a communicator, with the goroutine that makes the end and, when the target's
// machine decides so, destroys the end.
type targetEnd struct {
	in     *incoming
	number uint64        // of the end's epoch
	leave  chan struct{} // closed when the end is to be destroyed
}

// run makes the end, waits until closeRequested is closed, and destroys the end.
func (l *targetEnd) run(root []byte) {
	p := l.in.plane
	e, gone, err := p.makeEnd(&l.in.pair, l.number, root, false)
	if err != nil {
		l.in.Log.Warn("a communicator could not be formed", "epoch", l.number, "err", err)
	} else {
		<-l.leave
		gone = p.destroy(e, func() {}) == nil
	}
	if !gone && !l.in.pair.hccs {
		l.in.Log.Warn("a communicator could not be destroyed: only its peer can say that it is over", "epoch", l.number)
	}
	l.in.OnEndpointClosed(l.number, err != nil, gone)
}

// StartClose implements epochs.Endpoint.
func (l *targetEnd) StartClose() { close(l.leave) }
