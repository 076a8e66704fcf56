//go:build cgo && linux

package hccl

// A targetEndpoint is the target's end of a communicator, with the goroutine that makes the end and, when the target's
// machine decides so, destroys the end.
type targetEndpoint struct {
	executor       *targetExecutor
	epoch          uint64        // of the end's epoch
	closeRequested chan struct{} // closed when the end is to be destroyed
}

// runEndpoint makes the end, waits until closeRequested is closed, and destroys the end.
func (l *targetEndpoint) runEndpoint(root []byte) {
	p := l.executor.plane
	e, destroyed, err := p.newEndpoint(&l.executor.params, l.epoch, root, false)
	if err != nil {
		l.executor.Log.Warn("a communicator could not be formed", "epoch", l.epoch, "err", err)
	} else {
		<-l.closeRequested
		destroyed = p.destroyEndpoint(e, func() {}) == nil
	}
	if !destroyed && !l.executor.params.hccs {
		l.executor.Log.Warn("a communicator could not be destroyed: only the peer can prove that its accesses are over", "epoch", l.epoch)
	}
	l.executor.OnEndpointClosed(l.epoch, err != nil, destroyed)
}

// StartClose implements epochs.Endpoint.
func (l *targetEndpoint) StartClose() { close(l.closeRequested) }
