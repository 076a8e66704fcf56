package attach

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

// A handle is a handle that an engine holds: pages, shared chunks or a prefill. Exactly one field is set.
type handle struct {
	pages   *runtime.Pages
	shared  *runtime.SharedPages
	prefill *runtime.PrefillHandle
}

// A call is a call of an engine that is being carried out. The record exists until the node no longer uses the memory
// that the call lent (rule M8).
type call struct {
	server      *Server
	key         session.CallRef
	ctx         context.Context
	cancel      context.CancelFunc
	shownResult chan effects.Code  // the engine reports here whether it used the chunks that it was shown
	endedHandle uint64             // the handle that the call ends; 0: none
	put         *runtime.PutResult // the result of a put whose memory is not back, so that an abort can withdraw the offer
}

// An outcome is the result of a call.
type outcome struct {
	await     func() outcome // if set, the node has accepted the call, and await waits for its end
	answer    protocol.EngineAnswer
	err       error
	handle    *handle            // the handle that the call created
	stillHeld bool               // the handle that the call should have ended is still held
	put       *runtime.PutResult // the result of a put, so that the offer can be withdrawn
	returned  <-chan struct{}    // closed when the node no longer uses the lent memory; nil: the memory is back already
}

// abortCall cancels a call. If the call is a put that has ended, the server also withdraws the chunks that the put
// offered. The caller holds the server's mutex.
func (w *call) abortCall() {
	w.cancel()
	if w.put != nil {
		w.server.withdrawPut(w.put)
	}
}

// withdrawPut takes back the offer of a put when no engine waits for the result. If that fails, the offer ends by
// timeout.
func (s *Server) withdrawPut(put *runtime.PutResult) {
	s.tasks.Go(func() {
		if err := s.node.Sender().WithdrawPut(*put); err != nil {
			s.log.Debug("the offer of an engine that has ended could not be withdrawn; it ends by its timeout", "err", err)
		}
	})
}

// dropPutResult evicts the record of a call. If the engine is gone, the offer of the call is withdrawn. The caller
// holds the server's mutex.
func (s *Server) dropPutResult(x session.Drop) {
	e := s.engines[x.Session]
	if put := e.puts[x.ID]; put != nil && x.SessionLeaving {
		s.withdrawPut(put)
	}
	delete(e.puts, x.ID)
}

// reportShown passes on the engine's report about the chunks that the server has shown. The channel has room, because a
// call shows its batches one at a time.
func (w *call) reportShown(code effects.Code) {
	select {
	case w.shownResult <- code:
	default:
	}
}

// beginCall starts a call: a quick call on the engine's goroutine for quick calls, any longer call on a separate
// goroutine. The caller holds the server's mutex.
func (s *Server) beginCall(b session.Begin) {
	e := s.engines[b.Session]
	w := &call{server: s, key: b.CallRef, shownResult: make(chan effects.Code, 1)}
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	e.calls[b.ID] = w
	run := s.prepareCall(e, w, b.Op, b.Body) // prepareCall reads the body, which is valid only until the machine's next step.
	carryOut := func() {
		out := run(w.ctx)
		if out.await == nil {
			w.endCall(out)
			return
		}
		s.tasks.Go(func() { w.endCall(out.await()) })
	}
	if quickOps[b.Op] {
		e.quickCalls <- carryOut // The channel has room for every call that may be open.
	} else {
		s.tasks.Go(carryOut)
	}
}

// runQuickCalls carries out the quick calls of an engine in order, until the engine has left or the server ends.
func (s *Server) runQuickCalls(quickCalls <-chan func()) {
	for {
		select {
		case carryOut, ok := <-quickCalls:
			if !ok {
				return
			}
			carryOut()
		case <-s.ctx.Done():
			return
		}
	}
}

// endCall reports the outcome of a call to the session machine. If the node still uses the lent memory, the call waits
// until the memory is returned, and reports the return as well (rule M8).
func (w *call) endCall(out outcome) {
	s := w.server
	defer w.cancel()
	if out.returned != nil {
		select {
		case <-out.returned:
			out.returned = nil
		default:
		}
	}
	out.answer.ID, out.answer.Held = w.key.ID, out.returned != nil
	setError(&out.answer, out.err)
	s.mu.Lock()
	e := s.engines[w.key.Session]
	if out.handle != nil {
		e.handles[w.key.ID] = out.handle
	}
	if w.endedHandle != 0 && !out.stillHeld {
		delete(e.handles, w.endedHandle)
	}
	if w.put = out.put; out.put != nil {
		e.puts[w.key.ID] = out.put
	}
	if out.returned == nil {
		delete(e.calls, w.key.ID)
	}
	s.stepMachine(func(m *session.Machine, x *session.Effects) {
		m.OnCallEnded(w.key, &out.answer, out.handle != nil, out.stillHeld, x)
	})
	s.mu.Unlock()
	if out.returned == nil {
		return
	}
	select {
	case <-out.returned:
	case <-s.ctx.Done():
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(e.calls, w.key.ID)
	s.stepMachine(func(m *session.Machine, x *session.Effects) { m.OnMemoryReturned(w.key, x) })
}

// setError copies an error into an answer, with the code, the fields and the remedy. A nil error sets the code only.
func setError(a *protocol.EngineAnswer, err error) {
	a.Code = uint32(runtime.CodeOf(err))
	if err == nil {
		return
	}
	var e *runtime.Error
	if !errors.As(err, &e) {
		a.Said = clipText(err.Error())
		return
	}
	a.Count, a.Peer, a.Field, a.Ours, a.Theirs = uint32(max(e.Count, 0)), clipText(e.Peer), clipText(e.Field), clipText(e.Ours),
		clipText(e.Theirs)
	a.Said, a.Remedy, a.Stage = clipText(e.PeerMessage), clipText(e.Remedy), clipText(e.Stage.String())
	if e.Cause != nil && len(a.Said) == 0 {
		a.Said = clipText(e.Cause.Error())
	}
}

// textMax is the longest text of an answer in bytes.
const textMax = 512

// clipText shortens a text to textMax bytes.
func clipText(s string) []byte {
	return []byte(strings.ToValidUTF8(s[:min(len(s), textMax)], "")) // The cut may be within a rune.
}

// freeHandle gives back a handle of an engine that is gone, and tries again until that succeeds or the server ends. The
// caller holds the server's mutex.
func (s *Server) freeHandle(x session.Free) {
	e := s.engines[x.Session]
	h := e.handles[x.Holding]
	s.tasks.Go(func() {
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			err := h.close(s.ctx)
			if s.ctx.Err() != nil {
				return // The server ends; the operating system frees the node's memory with the process.
			}
			if err == nil {
				break
			}
			s.log.Warn("a handle of an engine that has ended cannot be released yet", "session", x.Session, "engine", e.name,
				"holding", x.Holding, "kind", x.Kind.String(), "err", err)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(e.handles, x.Holding)
		s.stepMachine(func(m *session.Machine, out *session.Effects) { m.OnHoldingFreed(x.Session, x.Holding, out) })
	})
}

// close ends the handle: shared chunks are withdrawn, pages are released, a prefill is dropped. The result is nil
// if the handle has ended already.
func (h *handle) close(ctx context.Context) error {
	var err error
	switch {
	case h.shared != nil:
		err = h.shared.Withdraw(ctx)
	case h.pages != nil:
		err = h.pages.Release(ctx)
	default:
		err = h.prefill.Drop()
	}
	if hasEnded(err) {
		return nil
	}
	return err
}

// hasEnded reports whether the error means that the handle has ended, or will end without another call.
func hasEnded(err error) bool {
	return slices.Contains([]effects.Code{effects.OK, effects.NotFound, effects.Ended, effects.Failed, effects.Closed},
		runtime.CodeOf(err))
}
