package contract

import "github.com/kvferry/kvferry/effects"

// windowScenario plays a scenario on a Conn from A to B that was opened with a window, after A has sent three requests
// at once and B has received the requests.
func windowScenario(
	name string, ends []Ending, ch effects.Channel,
	run func(s *connCase, corrs []effects.Corr, heard []effects.Request) Ending,
) Scenario[WireStage] {
	return Scenario[WireStage]{Name: name, Endings: ends, run: func(p *trial, stage WireStage) Ending {
		s := &connCase{trial: p, stage: stage}
		corr := s.nextCorr(A)
		s.issue(A, &effects.Open{Corr: corr, Channel: ch, Window: uint16(len(requestBodies)), Addr: stage.ServerAddr(ch)})
		if ev := awaitNew(p, A, func(e *effects.Opened) bool { return e.Corr == corr }); ev != nil {
			s.conn = ev.Conn
		}
		corrs := make([]effects.Corr, len(requestBodies))
		for i, q := range requestBodies {
			corrs[i] = s.sendRequest(q)
		}
		return run(s, corrs, s.awaitRequests(requestBodies))
	}}
}

var requestBodies = []string{"one", "two", "three"}

// awaitRequests waits until B has received the requests, which may arrive in any order.
func (s *connCase) awaitRequests(bodies []string) []effects.Request {
	requests := make([]effects.Request, len(bodies))
	for left := len(bodies); left > 0 && s.err == nil; {
		at, ev, ok := s.nextEvent()
		if !ok {
			s.fail("%d questions never came", left)
			break
		}
		if e, is := ev.(*effects.Received); is && at == B {
			for i, q := range bodies {
				if string(e.Body) == q && requests[i] == 0 {
					requests[i] = e.Request
					left--
				}
			}
		}
	}
	return requests
}

// awaitEnds waits for the ends of requests and checks that each reply belongs to the right request. All requests must
// have the same ending.
func (s *connCase) awaitEnds(corrs []effects.Corr, answers ...string) (end Ending) {
	for left := len(corrs); left > 0 && s.err == nil; {
		at, ev, ok := s.nextEvent()
		if !ok {
			s.fail("%d questions never ended", left)
			break
		}
		for i, corr := range corrs {
			one, ours := Ending{Verb: Sending}, false
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

// ConcurrentRequests returns the scenarios of control transports with several requests in flight on one connection.
func ConcurrentRequests() []Scenario[WireStage] {
	backwards := func(s *connCase, corrs []effects.Corr, heard []effects.Request) Ending {
		for i := len(heard) - 1; i >= 0; i-- {
			s.sendReply(heard[i], "to "+requestBodies[i])
		}
		return s.awaitEnds(corrs, "to one", "to two", "to three")
	}
	return []Scenario[WireStage]{
		windowScenario("answers come in another order", endings(Sending, effects.OK), effects.ChannelAlloc, backwards),
		windowScenario("answers with bare ids come in another order", endings(Sending, effects.OK), effects.ChannelLookup, backwards),
		windowScenario("an answer makes room in the window", endings(Sending, effects.OK), effects.ChannelAlloc,
			func(s *connCase, corrs []effects.Corr, heard []effects.Request) Ending {
				s.sendReply(heard[1], "to two")
				s.awaitEnds(corrs[1:2], "to two")
				more := s.sendRequest("more")
				request := s.awaitRequest("more")
				s.sendReply(request, "to more")
				s.awaitEnds([]effects.Corr{more}, "to more")
				s.sendReply(heard[0], "to one")
				s.sendReply(heard[2], "to three")
				return s.awaitEnds([]effects.Corr{corrs[0], corrs[2]}, "to one", "to three")
			}),
		windowScenario("all questions end at the close", endings(Sending, effects.Closed), effects.ChannelAlloc,
			func(s *connCase, corrs []effects.Corr, heard []effects.Request) Ending {
				s.issue(A, &effects.Close{Conn: s.conn})
				var end Ending
				for _, corr := range corrs { // In their order, because awaitEnd passes over other completions.
					end = s.awaitEnd(corr, "")
				}
				s.sendReply(heard[1], "too late")
				return end
			}),
		windowScenario("one question of many is never answered", endings(Sending, effects.Closed), effects.ChannelAlloc,
			func(s *connCase, corrs []effects.Corr, heard []effects.Request) Ending {
				s.sendReply(heard[2], "to three")
				s.sendReply(heard[0], "to one")
				s.awaitEnds([]effects.Corr{corrs[0], corrs[2]}, "to one", "to three")
				s.issue(A, &effects.Close{Conn: s.conn})
				return s.awaitEnd(corrs[1], "")
			}),
		// A reply in the mailbox counts, and what was in flight is dropped with the connection.
		windowScenario("a connection is closed behind one answer of many", endings(Sending, effects.Closed), effects.ChannelAlloc,
			func(s *connCase, corrs []effects.Corr, heard []effects.Request) Ending {
				s.sendReply(heard[1], "to two")
				queueUntil(s.trial, A, func(e *effects.Replied) bool { return e.Corr == corrs[1] })
				s.issue(A, &effects.Close{Conn: s.conn})
				s.awaitEnd(corrs[1], "to two")
				return s.awaitEnds([]effects.Corr{corrs[0], corrs[2]}, "", "")
			}),
		windowScenario("the server dies with many questions", endings(Sending, effects.Closed, effects.PeerLost), effects.ChannelAlloc,
			func(s *connCase, corrs []effects.Corr, _ []effects.Request) Ending {
				s.killNode(B)
				s.issue(A, &effects.Close{Conn: s.conn})
				return s.awaitEnds(corrs, "", "", "")
			}),
		{Name: "an answer has several parts", Endings: endings(Sending, effects.OK), run: func(p *trial, stage WireStage) Ending {
			s := &connCase{trial: p, stage: stage}
			s.conn = s.openConn(effects.ChannelMeta, stage.ServerAddr(effects.ChannelMeta)).Conn
			question := string(effects.AppendPart(nil, []byte("what are you")))
			var answer []byte
			for _, part := range []string{"this", "", "and that"} {
				answer = effects.AppendPart(answer, []byte(part))
			}
			corr := s.sendRequest(question)
			s.sendReply(s.awaitRequest(question), string(answer))
			return s.awaitEnd(corr, string(answer))
		}},
	}
}
