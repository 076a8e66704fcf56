//go:build cgo && linux

package nixl

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/plane"
)

const (
	// linksOfPeer is how many links one peer may have: one, and those of which it alone knows yet that they have ended.
	linksOfPeer = 4
	// reserved is the part of the places that one address leaves to others, one in so many: names cost nothing, and each
	// has a token.
	reserved = 8
	// epochsMax bounds epochs of a link that are not over: one, and those whose forming was given up by the peer and not
	// yet here.
	epochsMax = 8
	// revokesMax is how many grants can be in force at a time, by the low bits of their ids.
	revokesMax = 1 << 16
	// networkMargin is waited after the word, or the death, of a peer of another host: what its hardware had sent is in
	// the network yet. Our own agent is destroyed besides; this is for where that fails.
	networkMargin = 100 * time.Millisecond
)

// limits are what the target's machine is bound by.
func (c *Config) limits() communicator.Limits {
	return communicator.Limits{
		Sessions: c.Links, OfPeer: linksOfPeer, Reserved: reserved, Epochs: epochsMax, Revokes: revokesMax,
	}
}

// feed has the target's machine take an event and carries out what comes of it; why is the cause where a link ends by
// it. Nothing of that blocks or comes back here. With the plane's mutex held, and so at one with what is said of grants
// that were taken back.
func (p *Plane) feed(ev communicator.TargetEvent, why error) {
	out := &p.said
	out.Reset()
	p.target.Step(&ev, out)
	for _, name := range out.Expelled {
		p.stats.Expelled++
		p.incoming[name.Session].log.Info("a peer's epoch is fenced, to revoke what it was granted", "epoch", name.Epoch)
	}
	for _, name := range out.Fences {
		p.incoming[name.Session].ch.Say(appendEpoch(nil, kindFenced, name.Epoch))
	}
	for _, name := range out.Leaves {
		close(p.incoming[name.Session].ends[name.Epoch].leave)
	}
	for _, session := range out.Lost {
		in := p.incoming[session]
		in.log.Info("a peer's link ended", "err", why)
		p.env.Sink.Post(&effects.LinkLost{Peer: in.hello.from})
	}
	for _, name := range out.Margins {
		p.release(p.incoming[name.Session], name)
	}
	for _, name := range out.Over {
		delete(p.incoming[name.Session].ends, name.Epoch)
	}
	for _, n := range out.Revoked {
		p.revoking[n]()
		delete(p.revoking, n)
	}
	for _, session := range out.HangUps {
		in := p.incoming[session]
		p.wg.Go(func() { in.ch.Finish(in.reader) }) // What was said last is proof of something, and goes first.
	}
	for _, session := range out.Forgotten {
		delete(p.incoming, session)
	}
}

// release has the peer's word that its agent is destroyed count when ours is not asked any more, either: what the peer
// had sent is stored by ours, whatever else it may do by itself.
func (p *Plane) release(in *incoming, name communicator.EpochOf) {
	l := in.ends[name.Epoch]
	p.wg.Go(func() {
		<-l.done
		if !in.near {
			<-time.After(networkMargin)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.feed(communicator.TargetEvent{
			Kind: communicator.MarginOver, Session: name.Session, Epoch: name.Epoch,
		}, nil)
	})
}

var _ plane.Guard = (*Plane)(nil)
