//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/libnixl"
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

// say tells the peer a word of the machine's.
func (o *outgoing) say(s communicator.Say) {
	k := kindOffer
	switch s.Word {
	case communicator.Offer:
	case communicator.Fenced:
		k = kindFenced
	case communicator.Gone:
		k = kindGone
	}
	o.tell(k, s.Epoch)
}

func (o *outgoing) tell(k kind, epoch uint64) {
	if !o.ch.Say(appendEpoch(nil, k, epoch)) {
		o.lost(errStalled)
	}
}

var errStalled = errors.New("the peer takes no message any more")

// form makes the agent of an epoch and has it meet the target's, whose metadata came with the accept.
func (o *outgoing) form(epoch uint64) {
	p, metadata := o.plane, o.metadata
	p.wg.Go(func() {
		e, err := o.makeEnd(epoch, metadata)
		o.Push(func(now effects.Time) {
			formed := communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: effects.OK}
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					o.log.Warn("agents could not meet", "epoch", epoch, "err", err)
				}
				formed.Code = effects.Faulted
				if errors.Is(err, errAlone) || errors.Is(err, context.DeadlineExceeded) {
					formed.Code = effects.Unreachable
				}
				o.feed(now, formed)
				return
			}
			if epoch > 1 {
				o.log.Info("the agents were rebuilt", "epoch", epoch)
			}
			p.count(func(s *Stats) { s.Formed++ })
			o.end, o.busy = e, true // The target's agent is asked since it was made.
			o.feed(now, formed)
		})
	})
}

func (o *outgoing) makeEnd(epoch uint64, metadata []byte) (*end, error) {
	p := o.plane
	e, err := p.makeEnd(agentOf(o.session, epoch, atInitiator), p.pool.Regions())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.opening, p.cfg.PrepareTimeout)
	defer cancel()
	here := p.scratch.at()
	err = e.meet(ctx, &meeting{
		metadata: metadata, peer: agentOf(o.session, epoch, atTarget),
		probe:  libnixl.Pair{Local: here.Address, Remote: o.welcome.probe, Bytes: 1},
		met:    func() bool { return o.met.Load() >= epoch },
		fenced: func() bool { return o.fenced.Load() >= epoch },
		left:   o.reader,
	})
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// submit posts a batch of a job. The clock is read right before.
func (o *outgoing) submit(j *job, b communicator.Batch) communicator.Outcome {
	batch := j.batches[b.Index]
	posted, err := o.end.post(j.read, batch, func() bool { return plane.Now() > b.NotAfter })
	switch {
	case err != nil:
		o.log.Warn("a batch could not be submitted", "epoch", o.m.Epoch(), "err", err)
		return communicator.Broken
	case !posted:
		return communicator.TooLate
	}
	o.pauses = pauses{}
	var bytes uint64
	for _, piece := range batch {
		bytes += piece.Bytes
	}
	o.plane.count(func(s *Stats) {
		s.Batches++
		s.Descriptors += uint64(len(batch))
		s.Bytes += bytes
	})
	return communicator.Done
}

// look asks the agent, and tells the machine of batches that have ended. The target is told when its agent is waited
// for, and when not any more: batches that end in the call need nothing of it.
func (o *outgoing) look() {
	for o.flying() {
		ended, err := o.end.ended()
		if !ended {
			break
		}
		if err != nil {
			o.log.Warn("a batch failed", "epoch", o.m.Epoch(), "err", err)
		}
		o.pauses = pauses{}
		o.feed(plane.Now(), communicator.Event{Kind: communicator.BatchEnded, Epoch: o.m.Epoch(), Well: err == nil})
	}
	if flying := o.flying(); o.end != nil && flying != o.busy {
		o.busy = flying
		k := kindIdle
		if flying {
			k = kindBusy
		}
		o.tell(k, o.m.Epoch())
	}
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
		o.log.Log(p.opening, level, "an epoch is fenced", "epoch", d.Epoch, "in_flight", d.Flying, "by_peer", d.ByPeer)
		p.count(func(s *Stats) { s.Fenced++ })
	}
	p.wg.Go(func() {
		for len(e.flights) > 0 && !e.failed { // What has ended well by now counts.
			if ended, err := e.ended(); !ended || err != nil {
				break
			}
			o.happens(communicator.Event{Kind: communicator.BatchEnded, Epoch: d.Epoch, Well: true})
		}
		err := e.close()
		if err == nil && (quiet || o.awaitPartner(d.Epoch)) {
			o.happens(communicator.Event{Kind: communicator.TornDown, Epoch: d.Epoch})
			return
		}
		o.log.Error("there is no proof that a fenced epoch is over: its pages stay in quarantine", "epoch", d.Epoch,
			"err", err)
		o.happens(communicator.Event{Kind: communicator.NoProof, Epoch: d.Epoch})
	})
}

// stuckAfter is how long a transfer that a fence met waits for the target's word before it is told its end, unsettled.
const stuckAfter = time.Second

// awaitPartner waits until the target's agent of an epoch is destroyed; false says that this will never be known. Our
// own is.
func (o *outgoing) awaitPartner(epoch uint64) bool {
	late := time.NewTimer(stuckAfter)
	defer late.Stop()
	for {
		what, moved := o.partner.of(epoch)
		switch what {
		case over:
			return true
		case never:
			return false
		case unheard:
			o.ch.Finish(o.reader) // Our own end is settled: the target takes it for that, and closes.
			o.partner.move(func() { o.partner.deaf = false })
			continue
		case unknown:
		}
		select {
		case <-moved:
		case <-late.C:
			o.log.Warn("the target does not say that its agent is gone: what was under way to it is not settled",
				"epoch", epoch)
			o.happens(communicator.Event{Kind: communicator.Stuck, Epoch: epoch})
		}
	}
}
