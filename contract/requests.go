package contract

import "github.com/kvferry/kvferry/effects"

// connCase is a Conn from A to a channel of B, usually the alloc channel.
type connCase struct {
	*trial
	stage WireStage
	conn  effects.Conn
}

func (s *connCase) openConn(ch effects.Channel, to effects.Addr) effects.Opened {
	corr := s.nextCorr(A)
	s.issue(A, &effects.Open{Corr: corr, Channel: ch, Addr: to})
	if ev := awaitNew(s.trial, A, func(e *effects.Opened) bool { return e.Corr == corr }); ev != nil {
		return *ev
	}
	return effects.Opened{}
}

// sendRequest sends a request and overwrites the bytes afterwards, as a machine may.
func (s *connCase) sendRequest(question string) effects.Corr {
	corr, body := s.nextCorr(A), []byte(question)
	s.issue(A, &effects.Send{Corr: corr, Conn: s.conn, Body: body})
	clear(body)
	return corr
}

func (s *connCase) awaitRequest(question string) effects.Request {
	if ev := awaitNew(s.trial, B, func(e *effects.Received) bool { return string(e.Body) == question }); ev != nil {
		return ev.Request
	}
	return 0
}

func (s *connCase) sendReply(r effects.Request, answer string) {
	body := []byte(answer)
	s.issue(B, &effects.Reply{Request: r, Body: body})
	clear(body)
}

// awaitEnd waits for the end of a request and checks the reply, if the request got a reply.
func (s *connCase) awaitEnd(corr effects.Corr, answer string) Ending {
	for s.err == nil {
		at, ev, ok := s.nextEvent()
		if !ok {
			s.fail("the question never ended")
			break
		}
		switch e := ev.(type) {
		case *effects.Replied:
			if at == A && e.Corr == corr {
				if string(e.Body) != answer {
					s.fail("the answer is %q instead of %q", e.Body, answer)
				}
				return Ending{Verb: Sending}
			}
		case *effects.Unanswered:
			if at == A && e.Corr == corr {
				return Ending{Verb: Sending, Code: e.Code}
			}
		default: // Other events do not matter here.
		}
	}
	return Ending{}
}

func connScenario(name string, ends []Ending, run func(s *connCase) Ending) Scenario[WireStage] {
	return Scenario[WireStage]{Name: name, Endings: ends, run: func(p *trial, stage WireStage) Ending {
		s := &connCase{trial: p, stage: stage}
		s.conn = s.openConn(effects.ChannelAlloc, stage.ServerAddr(effects.ChannelAlloc)).Conn
		return run(s)
	}}
}

// Requests returns the scenarios of control transports.
func Requests() []Scenario[WireStage] {
	return []Scenario[WireStage]{
		connScenario("a question is answered", endings(Sending, effects.OK), func(s *connCase) Ending {
			corr := s.sendRequest("ping")
			s.sendReply(s.awaitRequest("ping"), "pong")
			return s.awaitEnd(corr, "pong")
		}),
		connScenario("questions follow each other", endings(Sending, effects.OK), func(s *connCase) (end Ending) {
			for _, q := range []string{"one", "two", "three"} {
				corr := s.sendRequest(q)
				s.sendReply(s.awaitRequest(q), "to "+q)
				end = s.awaitEnd(corr, "to "+q)
			}
			return end
		}),
		connScenario("a connection is closed before the answer", endings(Sending, effects.Closed), func(s *connCase) Ending {
			corr := s.sendRequest("slow")
			r := s.awaitRequest("slow")
			s.issue(A, &effects.Close{Conn: s.conn})
			end := s.awaitEnd(corr, "")
			s.sendReply(r, "too late") // The reply must be dropped: a delivery would be a second completion.
			return end
		}),
		// The reply may be in the mailbox when Close is carried out; the reply then counts.
		connScenario("a connection is closed while the answer is under way", endings(Sending, effects.OK, effects.Closed),
			func(s *connCase) Ending {
				corr := s.sendRequest("close call")
				s.sendReply(s.awaitRequest("close call"), "just so")
				s.issue(A, &effects.Close{Conn: s.conn})
				return s.awaitEnd(corr, "just so")
			}),
		connScenario("a connection is closed behind its answer", endings(Sending, effects.OK), func(s *connCase) Ending {
			corr := s.sendRequest("in time")
			s.sendReply(s.awaitRequest("in time"), "unread")
			queueUntil(s.trial, A, func(e *effects.Replied) bool { return e.Corr == corr })
			s.issue(A, &effects.Close{Conn: s.conn})
			return s.awaitEnd(corr, "unread")
		}),
		// The first reply must never be taken for the reply to the second request (M6).
		connScenario("a late answer is not taken for the next one", endings(Sending, effects.OK), func(s *connCase) Ending {
			first := s.sendRequest("first")
			late := s.awaitRequest("first")
			s.issue(A, &effects.Close{Conn: s.conn})
			s.awaitEnd(first, "")
			s.conn = s.openConn(effects.ChannelAlloc, s.stage.ServerAddr(effects.ChannelAlloc)).Conn
			second := s.sendRequest("second")
			r := s.awaitRequest("second")
			s.sendReply(late, "to the first")
			s.sendReply(r, "to the second")
			return s.awaitEnd(second, "to the second")
		}),
		{Name: "a message is told one way", Endings: endings(Posting, effects.OK), run: func(p *trial, stage WireStage) Ending {
			s := &connCase{trial: p, stage: stage}
			s.conn = s.openConn(effects.ChannelProxy, stage.ServerAddr(effects.ChannelProxy)).Conn
			corr := s.nextCorr(A)
			s.issue(A, &effects.Post{Corr: corr, Conn: s.conn, Body: stage.OneWayBody()})
			if ev := awaitNew(p, A, func(e *effects.SendDone) bool { return e.Corr == corr }); ev != nil {
				return Ending{Verb: Posting, Code: ev.Code}
			}
			return Ending{}
		}},
		// Some transports notice the death; otherwise the machine has to time out.
		connScenario("the server dies with a question", endings(Sending, effects.Closed, effects.PeerLost), func(s *connCase) Ending {
			corr := s.sendRequest("last")
			s.awaitRequest("last")
			s.killNode(B)
			s.issue(A, &effects.Close{Conn: s.conn})
			return s.awaitEnd(corr, "")
		}),
		// Each message has its own completion, with any code, even if there are many messages.
		{Name: "several messages wait on a connection that is closed", Endings: endings(Posting, effects.OK), run: closeWithManyPosts},
		{Name: "a connection to where nobody is", Endings: endings(Opening, effects.OK, effects.Unreachable),
			run: func(p *trial, stage WireStage) Ending {
				s := &connCase{trial: p, stage: stage}
				ev := s.openConn(effects.ChannelInit, stage.UnusedAddr())
				end, _ := EndingOf(&ev)
				return end
			}},
	}
}

// closeWithManyPosts sends several one-way messages to a server that dies, closes the connection and waits for the
// completion of each message.
func closeWithManyPosts(p *trial, stage WireStage) Ending {
	s := &connCase{trial: p, stage: stage}
	s.conn = s.openConn(effects.ChannelProxy, stage.ServerAddr(effects.ChannelProxy)).Conn
	corrs := []effects.Corr{s.postMessage()}
	awaitEvent(p, A, func(e *effects.SendDone) bool { return e.Corr == corrs[0] })
	s.killNode(B)
	for range 8 {
		corrs = append(corrs, s.postMessage())
	}
	s.issue(A, &effects.Close{Conn: s.conn})
	for _, corr := range corrs {
		awaitEvent(p, A, func(e *effects.SendDone) bool { return e.Corr == corr })
	}
	return Ending{Verb: Posting}
}

// postMessage sends a one-way message.
func (s *connCase) postMessage() effects.Corr {
	corr := s.nextCorr(A)
	s.issue(A, &effects.Post{Corr: corr, Conn: s.conn, Body: s.stage.OneWayBody()})
	return corr
}
