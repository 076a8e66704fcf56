//go:build cgo && linux

package hccl

// An ourEnd is a target's end of one communicator: a goroutine that makes it, and takes it away when the target's
// machine says so.
type ourEnd struct {
	in     *incoming
	number uint64        // of its epoch
	leave  chan struct{} // closed when the end is to go away
}

// lead makes our end, keeps it until it is to go, and takes it away.
func (l *ourEnd) lead(root []byte) {
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
	l.in.EndFinished(l.number, err != nil, gone)
}

// Leave implements epochs.End.
func (l *ourEnd) Leave() { close(l.leave) }
