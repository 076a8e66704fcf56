package contract

import "github.com/kvferry/kvferry/effects"

// asksMany plays a scenario on a Conn from A to B that was opened with a window, after A has sent three requests at
// once and B has received the requests.
func asksMany(
	name string, ends []Ending, ch effects.Channel,
	run func(s *aTalk, corrs []effects.Corr, heard []effects.Request) Ending,
) Scenario[WireStage] {
	return Scenario[WireStage]{Name: name, May: ends, run: func(p *play, stage WireStage) Ending {
		s := &aTalk{play: p, stage: stage}
		corr := s.corr(A)
		s.do(A, &effects.Open{Corr: corr, Channel: ch, Window: uint16(len(questions)), Addr: stage.Serves(ch)})
		if ev := until(p, A, func(e *effects.Opened) bool { return e.Corr == corr }); ev != nil {
			s.conn = ev.Conn
		}
		corrs := make([]effects.Corr, len(questions))
		for i, q := range questions {
			corrs[i] = s.asks(q)
		}
		return run(s, corrs, s.hearsAll(questions))
	}}
}

var questions = []string{"one", "two", "three"}

// hearsAll waits until B has received the requests, which may arrive in any order.
func (s *aTalk) hearsAll(questions []string) []effects.Request {
	heard := make([]effects.Request, len(questions))
	for left := len(questions); left > 0 && s.err == nil; {
		at, ev, ok := s.next()
		if !ok {
			s.fail("%d questions never came", left)
			break
		}
		if e, is := ev.(*effects.Received); is && at == B {
			for i, q := range questions {
				if string(e.Body) == q && heard[i] == 0 {
					heard[i] = e.Request
					left--
				}
			}
		}
	}
	return heard
}

// endsAll waits for the ends of requests and checks that each reply belongs to the right request. All requests must
// have the same ending.
func (s *aTalk) endsAll(corrs []effects.Corr, answers ...string) (end Ending) {
	for left := len(corrs); left > 0 && s.err == nil; {
		at, ev, ok := s.next()
		if !ok {
			s.fail("%d questions never ended", left)
			break
		}
		for i, corr := range corrs {
			one, ours := Ending{Of: Asking}, false
			switch e := ev.(type) {
			case *effects.Replied:
				if ours = at == A && e.Corr == corr; ours && string(e.Body) != answers[i] {
					s.fail("question %d is answered %q instead of %q", i, e.Body, answers[i])
				}
			case *effects.Unanswered:
				ours = at == A && e.Corr == corr
				one.Code = e.Code
			default: // Other events do not matter here.
			}
			if !ours {
				continue
			}
			if left < len(corrs) && one != end {
				s.fail("question %d ended as %v, another one as %v", i, one, end)
			}
			end = one
			left--
		}
	}
	return end
}

// Matches returns the scenarios of control transports with several requests in flight on one connection.
func Matches() []Scenario[WireStage] {
	backwards := func(s *aTalk, corrs []effects.Corr, heard []effects.Request) Ending {
		for i := len(heard) - 1; i >= 0; i-- {
			s.answers(heard[i], "to "+questions[i])
		}
		return s.endsAll(corrs, "to one", "to two", "to three")
	}
	return []Scenario[WireStage]{
		asksMany("answers come in another order", may(Asking, effects.OK), effects.ChannelAlloc, backwards),
		asksMany("answers with bare ids come in another order", may(Asking, effects.OK), effects.ChannelLookup, backwards),
		asksMany("an answer makes room in the window", may(Asking, effects.OK), effects.ChannelAlloc,
			func(s *aTalk, corrs []effects.Corr, heard []effects.Request) Ending {
				s.answers(heard[1], "to two")
				s.endsAll(corrs[1:2], "to two")
				more := s.asks("more")
				again := s.hears("more")
				s.answers(again, "to more")
				s.endsAll([]effects.Corr{more}, "to more")
				s.answers(heard[0], "to one")
				s.answers(heard[2], "to three")
				return s.endsAll([]effects.Corr{corrs[0], corrs[2]}, "to one", "to three")
			}),
		asksMany("all questions end at the close", may(Asking, effects.Closed), effects.ChannelAlloc,
			func(s *aTalk, corrs []effects.Corr, heard []effects.Request) Ending {
				s.do(A, &effects.Close{Conn: s.conn})
				var end Ending
				for _, corr := range corrs { // In their order, because ends passes over other completions.
					end = s.ends(corr, "")
				}
				s.answers(heard[1], "too late")
				return end
			}),
		asksMany("one question of many is never answered", may(Asking, effects.Closed), effects.ChannelAlloc,
			func(s *aTalk, corrs []effects.Corr, heard []effects.Request) Ending {
				s.answers(heard[2], "to three")
				s.answers(heard[0], "to one")
				s.endsAll([]effects.Corr{corrs[0], corrs[2]}, "to one", "to three")
				s.do(A, &effects.Close{Conn: s.conn})
				return s.ends(corrs[1], "")
			}),
		// A reply in the mailbox counts, and what was in flight is dropped with the connection.
		asksMany("a connection is closed behind one answer of many", may(Asking, effects.Closed), effects.ChannelAlloc,
			func(s *aTalk, corrs []effects.Corr, heard []effects.Request) Ending {
				s.answers(heard[1], "to two")
				waits(s.play, A, func(e *effects.Replied) bool { return e.Corr == corrs[1] })
				s.do(A, &effects.Close{Conn: s.conn})
				s.ends(corrs[1], "to two")
				return s.endsAll([]effects.Corr{corrs[0], corrs[2]}, "", "")
			}),
		asksMany("the server dies with many questions", may(Asking, effects.Closed, effects.PeerLost), effects.ChannelAlloc,
			func(s *aTalk, corrs []effects.Corr, _ []effects.Request) Ending {
				s.kill(B)
				s.do(A, &effects.Close{Conn: s.conn})
				return s.endsAll(corrs, "", "", "")
			}),
		{Name: "an answer has several parts", May: may(Asking, effects.OK), run: func(p *play, stage WireStage) Ending {
			s := &aTalk{play: p, stage: stage}
			s.conn = s.opens(effects.ChannelMeta, stage.Serves(effects.ChannelMeta)).Conn
			question := string(effects.AppendPart(nil, []byte("what are you")))
			var answer []byte
			for _, part := range []string{"this", "", "and that"} {
				answer = effects.AppendPart(answer, []byte(part))
			}
			corr := s.asks(question)
			s.answers(s.hears(question), string(answer))
			return s.ends(corr, string(answer))
		}},
	}
}
