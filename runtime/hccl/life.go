//go:build cgo && linux

package hccl

import (
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// A life is a target's end of one communicator, and what is known of the initiator's.
//
// It is over when nothing can reach the pool by it any more. Over RoCE the destruction of our own end proves it, whatever the peer does: the queue
// pair is gone, and its NIC's requests fail. Over HCCS the peer has our memory mapped, and what we destroy does not
// take that away: there its word counts, or its death, of which the connection tells.
type life struct {
	in        *incoming
	number    uint64
	condemned chan struct{}

	// Under the plane's mutex.
	condemning bool // condemned is closed
	releasing  bool // the peer's end is gone, or the peer
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
	if gone && !l.in.pair.hccs {
		l.prove()
	}
	l.forget()
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

// released says that the peer's end is gone, or the peer. What its hardware was at comes to an end within the margin.
func (l *life) released() {
	if l.releasing {
		return
	}
	l.releasing = true
	p := l.in.plane
	p.wg.Go(func() {
		pass(peerMargin)
		p.mu.Lock()
		defer p.mu.Unlock()
		l.prove()
		l.forget()
	})
}

func (l *life) prove() {
	if l.over {
		return
	}
	l.over = true
	for _, f := range l.waiting {
		f()
	}
	l.waiting = nil
}

// forget lets go of a life that is over and whose end is not worked at.
func (l *life) forget() {
	if l.over && l.led {
		delete(l.in.lives, l.number)
		l.in.rest()
	}
}

// Expel implements plane.Guard. The peer may form another communicator at once: it is told then what was taken back.
func (p *Plane) Expel(peer effects.Incarnation, gone func()) {
	left := &countdown{n: 1, zero: gone}
	p.mu.Lock()
	for _, in := range p.incoming {
		if in.hello.from != peer {
			continue
		}
		for _, l := range in.lives {
			if l.over {
				continue
			}
			left.n++
			l.waiting = append(l.waiting, left.down)
			l.condemn()
			p.stats.Expelled++
			in.log.Info("a peer's communicator is condemned, to revoke what it was granted", "life", l.number)
		}
	}
	p.mu.Unlock()
	left.down()
}

// A countdown calls zero when it has been told so often.
type countdown struct {
	mu   sync.Mutex
	n    int
	zero func()
}

func (c *countdown) down() {
	c.mu.Lock()
	c.n--
	last := c.n == 0
	c.mu.Unlock()
	if last {
		c.zero()
	}
}

// Stats counts what a plane has done since it was opened.
type Stats struct {
	Links, Incoming             int    // now: peers that we imported, and that imported us
	Formed, Condemned           uint64 // communicators of ours as initiator, and those of them that ended before their link
	Expelled                    uint64 // communicators of peers that were condemned to revoke a grant
	Batches, Descriptors, Bytes uint64 // submitted
}

func (s Stats) String() string {
	return fmt.Sprintf("links=%d incoming=%d formed=%d condemned=%d expelled=%d batches=%d descriptors=%d bytes=%d",
		s.Links, s.Incoming, s.Formed, s.Condemned, s.Expelled, s.Batches, s.Descriptors, s.Bytes)
}

// Stats returns the counters.
func (p *Plane) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Links, s.Incoming = len(p.links), len(p.incoming)
	return s
}

func (p *Plane) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}
