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

// A held is a handle that an engine holds: pages, shared chunks or a prefill. Exactly one field is set.
type held struct {
	pages   *runtime.Pages
	shared  *runtime.Shared
	prefill *runtime.Prefilling
}

// A work is a call of an engine that is being carried out. The record exists until the node no longer uses the memory
// that the call lent (rule M8).
type work struct {
	server *Server
	of     session.Call
	ctx    context.Context
	cancel context.CancelFunc
	read   chan effects.Code  // the engine reports here whether it used the chunks that it was shown
	ends   uint64             // the handle that the call ends; 0: none
	put    *runtime.PutResult // the result of a put whose memory is not back, so that an abort can withdraw the offer
}

// An outcome is the result of a call.
type outcome struct {
	later    func() outcome // if set, the node has accepted the call, and later waits for its end
	answer   protocol.EngineAnswer
	err      error
	held     *held              // the handle that the call created
	stands   bool               // the handle that the call should have ended is still held
	put      *runtime.PutResult // the result of a put, so that the offer can be withdrawn
	returned <-chan struct{}    // closed when the node no longer uses the lent memory; nil: the memory is back already
}

// abort cancels a call. If the call is a put that has ended, the server also withdraws the chunks that the put
// offered. The caller holds the server's mutex.
func (w *work) abort() {
	w.cancel()
	if w.put != nil {
		w.server.takeBackOf(w.put)
	}
}

// takeBackOf takes back the offer of a put when no engine waits for the result. If that fails, the offer ends by
// timeout.
func (s *Server) takeBackOf(put *runtime.PutResult) {
	s.tasks.Go(func() {
		if err := s.node.Sender().TakeBack(*put); err != nil {
			s.log.Debug("an offer of an engine that is gone ends by its time", "err", err)
		}
	})
}

// drop evicts the record of a call. If the engine is gone, the offer of the call is withdrawn. The caller holds the
// server's mutex.
func (s *Server) drop(x session.Drop) {
	e := s.engines[x.Session]
	if put := e.puts[x.ID]; put != nil && x.Left {
		s.takeBackOf(put)
	}
	delete(e.puts, x.ID)
}

// shown passes on the engine's report about the chunks that the server has shown. The channel has room, because a call
// shows its batches one at a time.
func (w *work) shown(code effects.Code) {
	select {
	case w.read <- code:
	default:
	}
}

// begin starts a call: a quick call on the engine's goroutine for quick calls, any longer call on a separate
// goroutine. The caller holds the server's mutex.
func (s *Server) begin(b session.Begin) {
	e := s.engines[b.Session]
	w := &work{server: s, of: b.Call, read: make(chan effects.Code, 1)}
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	e.calls[b.ID] = w
	run := s.prepare(e, w, b.Op, b.Body) // prepare reads the body, which is valid only until the machine's next step.
	carry := func() {
		out := run(w.ctx)
		if out.later == nil {
			w.end(out)
			return
		}
		s.tasks.Go(func() { w.end(out.later()) })
	}
	if swift[b.Op] {
		e.swift <- carry // The channel has room for every call that may be open.
	} else {
		s.tasks.Go(carry)
	}
}

// inOrder carries out the quick calls of an engine in order, until the engine has left or the server ends.
func (s *Server) inOrder(swift <-chan func()) {
	for {
		select {
		case carry, ok := <-swift:
			if !ok {
				return
			}
			carry()
		case <-s.ctx.Done():
			return
		}
	}
}

// end reports the outcome of a call to the session machine. If the node still uses the lent memory, the call waits
// until the memory is returned, and reports the return as well (rule M8).
func (w *work) end(out outcome) {
	s := w.server
	defer w.cancel()
	if out.returned != nil {
		select {
		case <-out.returned:
			out.returned = nil
		default:
		}
	}
	out.answer.ID, out.answer.Held = w.of.ID, out.returned != nil
	because(&out.answer, out.err)
	s.mu.Lock()
	e := s.engines[w.of.Session]
	if out.held != nil {
		e.holds[w.of.ID] = out.held
	}
	if w.ends != 0 && !out.stands {
		delete(e.holds, w.ends)
	}
	if w.put = out.put; out.put != nil {
		e.puts[w.of.ID] = out.put
	}
	if out.returned == nil {
		delete(e.calls, w.of.ID)
	}
	s.step(func(m *session.Machine, x *session.Out) {
		m.Ended(w.of, &out.answer, out.held != nil, out.stands, x)
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
	delete(e.calls, w.of.ID)
	s.step(func(m *session.Machine, x *session.Out) { m.Returned(w.of, x) })
}

// because copies an error into an answer, with the code, the fields and the remedy. A nil error sets the code only.
func because(a *protocol.EngineAnswer, err error) {
	a.Code = uint32(runtime.CodeOf(err))
	if err == nil {
		return
	}
	var e *runtime.Error
	if !errors.As(err, &e) {
		a.Said = clip(err.Error())
		return
	}
	a.Count, a.Peer, a.Field, a.Ours, a.Theirs = uint32(max(e.Count, 0)), clip(e.Peer), clip(e.Field), clip(e.Ours),
		clip(e.Theirs)
	a.Said, a.Remedy, a.Stage = clip(e.Said), clip(e.Remedy), clip(e.Stage.String())
	if e.Cause != nil && len(a.Said) == 0 {
		a.Said = clip(e.Cause.Error())
	}
}

// textMax is the longest text of an answer in bytes.
const textMax = 512

// clip shortens a text to textMax bytes.
func clip(s string) []byte {
	return []byte(strings.ToValidUTF8(s[:min(len(s), textMax)], "")) // The cut may be within a rune.
}

// free gives back a handle of an engine that is gone, and tries again until that succeeds or the server ends. The
// caller holds the server's mutex.
func (s *Server) free(x session.Free) {
	e := s.engines[x.Session]
	h := e.holds[x.Holding]
	s.tasks.Go(func() {
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			err := h.giveBack(s.ctx)
			if s.ctx.Err() != nil {
				return // The server ends; the operating system frees the node's memory with the process.
			}
			if err == nil {
				break
			}
			s.log.Warn("what an engine held that is gone cannot be given back yet", "session", x.Session, "engine", e.name,
				"holding", x.Holding, "kind", x.Kind.String(), "err", err)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(e.holds, x.Holding)
		s.step(func(m *session.Machine, out *session.Out) { m.Freed(x.Session, x.Holding, out) })
	})
}

// giveBack ends the handle: shared chunks are withdrawn, pages are released, a prefill is dropped. The result is nil
// if the handle has ended already.
func (h *held) giveBack(ctx context.Context) error {
	var err error
	switch {
	case h.shared != nil:
		err = h.shared.Withdraw(ctx)
	case h.pages != nil:
		err = h.pages.Release(ctx)
	default:
		err = h.prefill.Drop()
	}
	if over(err) {
		return nil
	}
	return err
}

// over reports whether the error means that the handle has ended, or will end without another call.
func over(err error) bool {
	return slices.Contains([]effects.Code{effects.OK, effects.NotFound, effects.Ended, effects.Failed, effects.Closed},
		runtime.CodeOf(err))
}
