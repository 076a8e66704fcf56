//go:build cgo && linux

package hccl

import (
	"errors"
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
)

// happens has the link's goroutine take an event.
func (o *outgoing) happens(ev communicator.Event) {
	o.Push(func(now effects.Time) { o.feed(now, ev) })
}

// feed has the machine take an event, and carries out what comes of it. On the link's goroutine only.
func (o *outgoing) feed(now effects.Time, ev communicator.Event) {
	o.m.Step(now, &ev, &o.out)
	out := &o.out
	for _, p := range out.Posts {
		o.owe(p)
	}
	for _, s := range out.Says {
		o.say(s)
	}
	if out.Form != 0 {
		o.form(out.Form)
	}
	if out.TearDown.Epoch != 0 {
		o.tearDown(out.TearDown)
	}
	out.Reset()
}

// owe tells the machine above what it is owed.
func (o *outgoing) owe(p communicator.Post) {
	switch p.Kind {
	case communicator.PostImported:
		e := &effects.Imported{Corr: o.corr, Code: p.Code}
		if p.Code == effects.OK {
			e.Link = o.id
		}
		o.post(e)
	case communicator.PostTransferDone:
		delete(o.jobs, p.Corr)
		o.post(&effects.TransferDone{Corr: p.Corr, Code: p.Code, Settled: p.Settled, At: p.At})
	case communicator.PostSettled:
		o.post(&effects.Settled{Corr: p.Corr, Code: p.Code})
	case communicator.PostLinkLost:
		o.post(&effects.LinkLost{Link: o.id, Peer: o.peer})
	case communicator.PostDropped:
		o.post(&effects.Dropped{Link: o.id})
	}
}

// post tells the machine above an event.
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

// say tells the peer a word.
func (o *outgoing) say(s communicator.Say) {
	var frame []byte
	switch s.Word {
	case communicator.Offer:
		root, err := o.plane.rootInfo(&o.pair)
		if err != nil {
			o.lost(err)
			return
		}
		o.root = root
		frame = appendOffer(nil, s.Epoch, root)
	case communicator.Fenced:
		frame = appendEpoch(nil, kindFenced, s.Epoch)
	case communicator.Gone:
		frame = appendEpoch(nil, kindGone, s.Epoch)
	}
	if !o.ch.Say(frame) {
		o.lost(errStalled)
	}
}

var errStalled = errors.New("the peer takes no message any more")

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

// form makes the communicator of an epoch and prepares it.
func (o *outgoing) form(epoch uint64) {
	p, root := o.plane, o.root
	p.wg.Go(func() {
		e, _, err := p.makeEnd(&o.pair, epoch, root, true)
		o.Push(func(now effects.Time) {
			formed := communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: effects.OK}
			if err != nil {
				o.log.Warn("a communicator could not be formed", "epoch", epoch, "err", err)
				formed.Code = formingCode(err)
				o.feed(now, formed)
				return
			}
			if epoch > 1 {
				o.log.Info("the communicator was rebuilt", "epoch", epoch)
			}
			p.count(func(s *Stats) { s.Formed++ })
			o.end = e
			o.feed(now, formed)
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

// submit puts a batch of a job into the stream. The clock is read right before, on the thread that does it.
func (o *outgoing) submit(j *job, b communicator.Batch) communicator.Outcome {
	batch, epoch, how := j.batches[b.Index], o.m.Epoch(), communicator.Broken
	o.descs = o.descs[:0]
	var bytes uint64
	for _, piece := range batch {
		o.descs = append(o.descs, comm.Desc{Local: piece.Local, Remote: piece.Remote, Bytes: piece.Bytes})
		bytes += piece.Bytes
	}
	e := o.end
	err := o.plane.ctx.Do(func(thread *acl.Thread) error {
		if plane.Now() > b.NotAfter {
			how = communicator.TooLate
			return nil
		}
		move := e.comm.Put
		if j.read {
			move = e.comm.Get
		}
		if err := move(thread, e.stream, o.descs); err != nil {
			return err
		}
		if err := o.filled(thread, e.stream, j.read); err != nil {
			return err
		}
		err := e.stream.Notify(thread, func(err error) {
			o.Push(func(now effects.Time) {
				if err != nil && !errors.Is(err, acl.Cancelled) {
					o.log.Warn("a batch failed", "epoch", epoch, "err", err)
				}
				o.feed(now, communicator.Event{Kind: communicator.BatchEnded, Epoch: epoch, Well: err == nil})
			})
		})
		if err == nil {
			how = communicator.Done
		}
		return err
	})
	if err != nil {
		o.log.Warn("a batch could not be submitted", "epoch", epoch, "err", err)
	}
	if how == communicator.Done {
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

// tearDown ends every access of an epoch to any memory, and tells the machine when that is proven, or cannot be.
func (o *outgoing) tearDown(d communicator.TearDown) {
	p, e, quiet := o.plane, o.end, d.Flying == 0
	o.end = nil
	if !quiet || !d.Last {
		level := slog.LevelWarn
		if quiet || d.ByPeer {
			level = slog.LevelInfo // As every revocation does.
		}
		o.log.Log(p.opening, level, "a communicator is fenced", "epoch", d.Epoch, "in_flight", d.Flying,
			"by_peer", d.ByPeer)
		p.count(func(s *Stats) { s.Fenced++ })
	}
	p.wg.Go(func() {
		stuck := communicator.Event{Kind: communicator.Stuck, Epoch: d.Epoch}
		if p.tearDown(e, quiet, func() { o.happens(stuck) }) {
			o.happens(communicator.Event{Kind: communicator.TornDown, Epoch: d.Epoch})
			return
		}
		o.log.Error("there is no proof that a fenced communicator is gone: its pages stay in quarantine",
			"epoch", d.Epoch)
		o.happens(communicator.Event{Kind: communicator.NoProof, Epoch: d.Epoch})
	})
}
