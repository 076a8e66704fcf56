//go:build cgo && linux

package hccl

import (
	"errors"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// SendMessage implements epochs.Executor.
func (o *initiatorExecutor) SendMessage(s communicator.Message) {
	var frame []byte
	switch s.Kind {
	case communicator.MessageOffer:
		root, err := o.plane.makeRootInfo(&o.params)
		if err != nil {
			o.OnChannelEnd(err)
			return
		}
		o.rootInfo = root
		frame = appendOffer(nil, s.Epoch, root)
	case communicator.MessageFenced:
		frame = appendEpoch(nil, kindFenced, s.Epoch)
	case communicator.MessageGone:
		frame = appendEpoch(nil, kindGone, s.Epoch)
	}
	o.SendFrame(frame)
}

// makeRootInfo makes root info if the ends use root info and this end is rank 0; otherwise root is nil.
func (p *Plane) makeRootInfo(params *commParams) (root []byte, err error) {
	if !p.cfg.UseRootInfo || params.rank != 0 {
		return nil, nil
	}
	err = p.device.Do(func(t *acl.Thread) (err error) {
		root, err = p.lib.RootInfo(t)
		return err
	})
	return root, err
}

// FormEpoch implements epochs.Executor. Another goroutine makes and prepares the communicator of the epoch.
func (o *initiatorExecutor) FormEpoch(epoch uint64) {
	p, root := o.plane, o.rootInfo
	p.wg.Go(func() {
		e, _, err := p.newEndpoint(&o.params, epoch, root, true)
		o.Push(func(now effects.Time) {
			formed := communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: effects.OK}
			if err != nil {
				o.Log.Warn("a communicator could not be formed", "epoch", epoch, "err", err)
				formed.Code = formingCode(err)
				o.StepMachine(now, formed)
				return
			}
			if epoch > 1 {
				o.Log.Info("the communicator was rebuilt", "epoch", epoch)
			}
			p.updateStats(func(s *Stats) { s.FormedEpochs++ })
			o.endpoint = e
			o.StepMachine(now, formed)
		})
	})
}

// formingCode returns the code of an import whose communicator cannot be made.
func formingCode(err error) effects.Code {
	if errors.Is(err, acl.Link) || errors.Is(err, acl.Timeout) {
		return effects.Unreachable
	}
	return effects.Faulted
}

// SubmitBatch implements epochs.Executor. The clock is read right before the batch is put into the stream, on the same
// thread, so that no batch starts after NotAfter.
func (o *initiatorExecutor) SubmitBatch(read bool, batch []epochs.Piece, b communicator.Batch) communicator.Outcome {
	epoch, outcome := o.Epoch(), communicator.SubmitFailed
	o.descs = o.descs[:0]
	var bytes uint64
	for _, piece := range batch {
		o.descs = append(o.descs, comm.Desc{Local: piece.Local, Remote: piece.Remote, Bytes: piece.Bytes})
		bytes += piece.Bytes
	}
	e := o.endpoint
	err := o.plane.device.Do(func(thread *acl.Thread) error {
		if plane.Now() > b.NotAfter {
			outcome = communicator.TooLate
			return nil
		}
		queue := e.comm.Put
		if read {
			queue = e.comm.Get
		}
		if err := queue(thread, e.stream, o.descs); err != nil {
			return err
		}
		if err := o.callOnReadQueued(thread, e.stream, read); err != nil {
			return err
		}
		err := e.stream.Notify(thread, func(err error) {
			o.Push(func(now effects.Time) {
				if err != nil && !errors.Is(err, acl.Cancelled) {
					o.Log.Warn("a batch failed", "epoch", epoch, "err", err)
				}
				o.StepMachine(now, communicator.Event{Kind: communicator.BatchEnded, Epoch: epoch, Succeeded: err == nil})
			})
		})
		if err == nil {
			outcome = communicator.InFlight
		}
		return err
	})
	if err != nil {
		o.Log.Warn("a batch could not be submitted", "epoch", epoch, "err", err)
	}
	if outcome == communicator.InFlight {
		o.plane.updateStats(func(s *Stats) {
			s.Batches++
			s.Descriptors += uint64(len(batch))
			s.Bytes += bytes
		})
	}
	return outcome
}

// callOnReadQueued calls Config.OnReadQueued with the memory that the batch in the stream reads into.
func (o *initiatorExecutor) callOnReadQueued(t *acl.Thread, s *acl.Stream, read bool) error {
	if !read || o.plane.cfg.OnReadQueued == nil {
		return nil
	}
	memory := make([]plane.Region, len(o.descs))
	for i, d := range o.descs {
		memory[i] = plane.Region{Base: d.Local, Bytes: d.Bytes}
	}
	return o.plane.cfg.OnReadQueued(t, s, memory)
}

// TearDown implements epochs.Executor. Every access of an epoch to any memory is ended. The machine learns when that is
// proven, or that there is no proof (M4).
func (o *initiatorExecutor) TearDown(d communicator.TearDown) {
	p, e := o.plane, o.endpoint
	o.endpoint = nil
	if o.LogTearDown("a communicator", d) {
		p.updateStats(func(s *Stats) { s.FencedEpochs++ })
	}
	p.wg.Go(func() {
		stuck := communicator.Event{Kind: communicator.Stuck, Epoch: d.Epoch}
		if p.tearDownEndpoint(e, d.InFlight == 0, func() { o.PostEvent(stuck) }) {
			o.PostEvent(communicator.Event{Kind: communicator.TornDown, Epoch: d.Epoch})
			return
		}
		o.Log.Error("there is no proof that a fenced communicator is gone: the pages of its transfers stay in quarantine",
			"epoch", d.Epoch)
		o.PostEvent(communicator.Event{Kind: communicator.NoProof, Epoch: d.Epoch})
	})
}
