//go:build cgo && linux

package hccl

import (
	"errors"
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
)

// post implements hands.
func (o *outgoing) post(ev effects.Event) {
	p := o.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := ev.(type) {
	case *effects.Imported:
		if e.Code == effects.OK {
			p.links[e.Link] = o
		}
	case *effects.Dropped:
		delete(p.links, e.Link)
	case *effects.TransferDone:
		delete(p.transfers, e.Corr)
	default:
	}
	p.env.Sink.Post(ev)
}

// tell implements hands.
func (o *outgoing) tell(k kind, life uint64) {
	frame := appendLife(nil, k, life)
	if k == kindOffer {
		root, err := o.plane.rootInfo(&o.pair)
		if err != nil {
			o.lost(err)
			return
		}
		o.root = root
		frame = appendOffer(nil, life, root)
	}
	if !o.ch.say(frame) {
		o.lost(errStalled)
	}
}

var errStalled = errors.New("the peer takes no word any more")

// rootInfo makes root info if the ends use it and this one is to make it.
func (p *Plane) rootInfo(pair *pair) (root []byte, err error) {
	if !p.cfg.RootInfo || pair.rank != 0 {
		return nil, nil
	}
	err = p.ctx.Do(func(t *acl.Thread) (err error) {
		root, err = p.lib.RootInfo(t)
		return err
	})
	return root, err
}

// form implements hands.
func (o *outgoing) form(life uint64) {
	p, root := o.plane, o.root
	p.wg.Go(func() {
		e, _, err := p.makeEnd(&o.pair, life, root, true)
		o.push(func(now effects.Time) {
			if err != nil {
				o.log.Warn("a communicator could not be formed", "life", life, "err", err)
				o.m.formed(life, formingCode(err), now)
				return
			}
			if life > 1 {
				o.log.Info("the communicator was rebuilt", "life", life)
			}
			p.count(func(s *Stats) { s.Formed++ })
			o.end = e
			o.m.formed(life, effects.OK, now)
		})
	})
}

// formingCode is how an import ends whose communicator cannot be formed.
func formingCode(err error) effects.Code {
	if errors.Is(err, acl.Link) || errors.Is(err, acl.Timeout) {
		return effects.Unreachable
	}
	return effects.Faulted
}

// submit puts the next batch of t into the stream. The clock is read right before, on the thread that does it.
func (o *outgoing) submit(t *transfer) outcome {
	batch, life, how := t.batches[t.sent], o.m.life, broken
	o.descs = o.descs[:0]
	var bytes uint64
	for _, piece := range batch {
		o.descs = append(o.descs, comm.Desc{Local: piece.local, Remote: piece.remote, Bytes: piece.bytes})
		bytes += piece.bytes
	}
	e := o.end
	err := o.plane.ctx.Do(func(thread *acl.Thread) error {
		if plane.Now() > t.notAfter {
			how = expired
			return nil
		}
		move := e.comm.Put
		if t.read {
			move = e.comm.Get
		}
		if err := move(thread, e.stream, o.descs); err != nil {
			return err
		}
		if err := o.filled(thread, e.stream, t.read); err != nil {
			return err
		}
		err := e.stream.Notify(thread, func(err error) {
			o.push(func(now effects.Time) {
				if err != nil && !errors.Is(err, acl.Cancelled) {
					o.log.Warn("a batch failed", "life", life, "err", err)
				}
				o.m.landed(life, err == nil, now)
			})
		})
		if err == nil {
			how = submitted
		}
		return err
	})
	if err != nil {
		o.log.Warn("a batch could not be submitted", "life", life, "err", err)
	}
	if how == submitted {
		o.plane.count(func(s *Stats) {
			s.Batches++
			s.Descriptors += uint64(len(batch))
			s.Bytes += bytes
		})
	}
	return how
}

// filled tells who wants to know what the batch in the stream reads into.
func (o *outgoing) filled(t *acl.Thread, s *acl.Stream, read bool) error {
	if !read || o.plane.cfg.Filled == nil {
		return nil
	}
	memory := make([]plane.Region, len(o.descs))
	for i, d := range o.descs {
		memory[i] = plane.Region{Base: d.Local, Bytes: d.Bytes}
	}
	return o.plane.cfg.Filled(t, s, memory)
}

// bury implements hands.
func (o *outgoing) bury(life uint64, quiet bool) {
	p, e := o.plane, o.end
	o.end = nil
	if !quiet || !o.m.final {
		level := slog.LevelWarn
		if quiet || o.m.byPeer {
			level = slog.LevelInfo // As every revocation does.
		}
		o.log.Log(p.opening, level, "a communicator is condemned", "life", life, "in_flight", len(o.m.flight), "by_peer", o.m.byPeer)
		p.count(func(s *Stats) { s.Condemned++ })
	}
	p.wg.Go(func() {
		proven := p.bury(e, quiet, func() { o.push(func(now effects.Time) { o.m.stuck(life, now) }) })
		if !proven {
			o.log.Error("there is no proof that a condemned communicator is gone: its pages stay in quarantine", "life", life)
			o.push(func(now effects.Time) { o.m.despair(life, now) })
			return
		}
		o.push(func(now effects.Time) { o.m.settled(life, now) })
	})
}
