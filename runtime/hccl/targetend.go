//go:build cgo && linux

package hccl

// A targetEnd is the target's end of one communicator, with the goroutine that makes it and, when the target's machine
// says so, destroys it.
type targetEnd struct {
	in     *incoming
	number uint64        // of its epoch
	leave  chan struct{} // closed when the end is to be destroyed
}

// run makes the end, keeps it until leave is closed, and destroys it.
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
