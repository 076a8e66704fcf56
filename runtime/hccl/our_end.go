//go:build cgo && linux

package hccl

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
)

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
		l.in.log.Warn("a communicator could not be formed", "epoch", l.number, "err", err)
	} else {
		<-l.leave
		gone = p.destroy(e, func() {}) == nil
	}
	if !gone && !l.in.pair.hccs {
		l.in.log.Warn("a communicator could not be destroyed: only its peer can say that it is over", "epoch", l.number)
	}
	l.led(err != nil, gone)
}

// led says that our end is not worked at any more.
func (l *ourEnd) led(failed, gone bool) {
	p := l.in.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	p.feed(communicator.TargetEvent{
		Kind: communicator.EndLed, Session: l.in.session(), Epoch: l.number, Failed: failed, Gone: gone,
	}, nil)
}

// Expel implements plane.Guard. The peer may form another communicator at once: it is told then what was taken back.
func (p *Plane) Expel(peer effects.Incarnation, gone func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revokes++
	p.revoking[p.revokes] = gone
	p.feed(communicator.TargetEvent{Kind: communicator.Expels, Revoke: p.revokes, Peer: peer}, nil)
}
