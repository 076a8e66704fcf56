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

// A held is something that an engine holds.
type held struct {
	pages   *runtime.Pages
	shared  *runtime.Shared
	prefill *runtime.Prefilling
}

// A work is one call that is carried out, until its memory is back.
type work struct {
	server *Server
	of     session.Call
	ctx    context.Context
	cancel context.CancelFunc
	read   chan effects.Code // what the engine says of what it was shown
	ends   uint64            // the holding that it is to end
	put    *runtime.PutResult
}

// An outcome is how a call ended.
type outcome struct {
	later    func() outcome // it is under way, and this waits for its end
	answer   protocol.EngineAnswer
	err      error
	held     *held              // what it brought
	stands   bool               // what it was to end is held still
	put      *runtime.PutResult // of a put, to be taken back
	returned <-chan struct{}    // when its memory is back; nil: it is
}

// abort ends a call soon, or takes back what it offered. With the server's mutex held.
func (w *work) abort() {
	w.cancel()
	if w.put != nil {
		w.server.takeBackOf(w.put)
	}
}

// takeBackOf ends the offer of a put that nobody waits for.
func (s *Server) takeBackOf(put *runtime.PutResult) {
	s.tasks.Go(func() {
		if err := s.node.Sender().TakeBack(*put); err != nil {
			s.log.Debug("an offer of an engine that is gone ends by its time", "err", err)
		}
	})
}

// drop forgets a call, and ends what it offered if its engine is gone. With the mutex held.
func (s *Server) drop(x session.Drop) {
	e := s.engines[x.Session]
	if put := e.puts[x.ID]; put != nil && x.Left {
		s.takeBackOf(put)
	}
	delete(e.puts, x.ID)
}

// shown passes on what the engine says of what it was shown. There is room: it is shown one thing at a time.
func (w *work) shown(code effects.Code) {
	select {
	case w.read <- code:
	default:
	}
}

// begin carries a call out on a goroutine of its own. With the mutex held.
func (s *Server) begin(b session.Begin) {
	e := s.engines[b.Session]
	w := &work{server: s, of: b.Call, read: make(chan effects.Code, 1)}
	w.ctx, w.cancel = context.WithCancel(s.ctx)
	e.calls[b.ID] = w
	run := s.prepare(e, w, b.Op, b.Body) // It reads the body, which is valid until the machine's next step.
	carry := func() {
		out := run(w.ctx)
		if out.later == nil {
			w.end(out)
			return
		}
		s.tasks.Go(func() { w.end(out.later()) })
	}
	if swift[b.Op] {
		e.swift <- carry // There is room for all that may be open.
	} else {
		s.tasks.Go(carry)
	}
}

// inOrder carries out the swift calls of an engine, one after the other, until it has left or the server ends.
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

// end tells the machine of an outcome, and waits for the memory if that is not back.
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

// because says in an answer what an error says.
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

// textMax bounds a text of an answer.
const textMax = 512

func clip(s string) []byte {
	return []byte(strings.ToValidUTF8(s[:min(len(s), textMax)], "")) // It may have been cut within a rune.
}

// free gives something back whose engine is gone. With the mutex held.
func (s *Server) free(x session.Free) {
	e := s.engines[x.Session]
	h := e.holds[x.Holding]
	s.tasks.Go(func() {
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			err := h.giveBack(s.ctx)
			if s.ctx.Err() != nil {
				return // The server ends, and the node's memory with its process.
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

// giveBack ends what is held. What is over already is no error.
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

// over says that what was to end has, or will by itself.
func over(err error) bool {
	return slices.Contains([]effects.Code{effects.OK, effects.NotFound, effects.Ended, effects.Failed, effects.Closed},
		runtime.CodeOf(err))
}
