//go:build cgo && linux

package hccl

import "github.com/kvferry/kvferry/effects"

// A life is a target's end of one communicator, and what is known of the initiator's.
//
// It is over when nothing can reach the pool by it any more. Over RoCE the destruction of our own end proves it,
// whatever the peer does or says: the queue pair is gone, and its NIC's requests fail. Nothing else proves it while our
// end is there, or may come to be. Over HCCS the peer has our memory mapped, and what we destroy does not take that
// away: there its word counts, or its death, of which the connection tells. Over RoCE they count only where our own end
// could not be destroyed.
type life struct {
	in        *incoming
	number    uint64
	condemned chan struct{}

	// Under the plane's mutex.
	condemning bool // condemned is closed
	releasing  bool // the peer has said that its end is gone, or its connection that it is
	released   bool // and the margin has passed since
	here       bool // our end is gone
	led        bool // our end is not worked at any more
	over       bool
	waiting    []func() // to be told that it is over
}

// lead makes our end, keeps it until the life is condemned, and takes it away.
func (l *life) lead(root []byte) {
	p := l.in.plane
	e, gone, err := p.makeEnd(&l.in.pair, l.number, root, false)
	if err != nil {
		l.in.log.Warn("a communicator could not be formed", "life", l.number, "err", err)
		l.in.ch.say(appendLife(nil, kindCondemned, l.number))
	} else {
		<-l.condemned
		gone = p.destroy(e, func() {}) == nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.here, l.led = gone, true
	if !gone && !l.in.pair.hccs {
		l.in.log.Warn("a communicator could not be destroyed: only its peer's word can prove it over", "life", l.number)
	}
	l.review()
}

// condemn has our end taken away, and tells the peer first, so that it knows whose doing it is that its batches fail.
func (l *life) condemn() {
	if !l.condemning {
		l.in.ch.say(appendLife(nil, kindCondemned, l.number))
		l.leave()
	}
}

// leave has our end taken away because the peer does not use it any more.
func (l *life) leave() {
	if !l.condemning {
		l.condemning = true
		close(l.condemned)
	}
}

// release says that the peer's end is gone, as it says, or the peer. What its hardware was at comes to an end within
// the margin.
func (l *life) release() {
	if l.releasing {
		return
	}
	l.releasing = true
	p := l.in.plane
	p.wg.Go(func() {
		pass(peerMargin)
		p.mu.Lock()
		defer p.mu.Unlock()
		l.released = true
		l.review()
	})
}

// proven reports whether there is proof that nothing reaches the pool by it any more.
func (l *life) proven() bool {
	if l.in.pair.hccs {
		return l.released
	}
	return l.here || l.led && l.released
}

// review ends a life of which there is proof now, and lets go of it when its end is not worked at, either.
func (l *life) review() {
	if !l.over && l.proven() {
		l.over = true
		for _, f := range l.waiting {
			f()
		}
		l.waiting = nil
	}
	if l.over && l.led {
		delete(l.in.lives, l.number)
		l.in.rest()
	}
}

// Expel implements plane.Guard. The peer may form another communicator at once: it is told then what was taken back.
func (p *Plane) Expel(peer effects.Incarnation, gone func()) {
	p.mu.Lock()
	left := 0
	over := func() { // Told with the mutex held.
		if left--; left == 0 {
			gone()
		}
	}
	for _, in := range p.incoming {
		if in.hello.from != peer {
			continue
		}
		for _, l := range in.lives {
			if l.over {
				continue
			}
			left++
			l.waiting = append(l.waiting, over)
			l.condemn()
			p.stats.Expelled++
			in.log.Info("a peer's communicator is condemned, to revoke what it was granted", "life", l.number)
		}
	}
	nobody := left == 0
	p.mu.Unlock()
	if nobody {
		gone()
	}
}
