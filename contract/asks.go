package contract

import "github.com/kvferry/kvferry/effects"

// aTalk is a Conn from A to a channel of B, usually the alloc channel.
type aTalk struct {
	*play
	stage WireStage
	conn  effects.Conn
}

func (s *aTalk) opens(ch effects.Channel, to effects.Addr) effects.Opened {
	corr := s.corr(A)
	s.do(A, &effects.Open{Corr: corr, Channel: ch, Addr: to})
	if ev := until(s.play, A, func(e *effects.Opened) bool { return e.Corr == corr }); ev != nil {
		return *ev
	}
	return effects.Opened{}
}

// sendRequest sends a request and overwrites the bytes afterwards, as a machine may.
func (s *aTalk) asks(question string) effects.Corr {
	corr, body := s.corr(A), []byte(question)
	s.do(A, &effects.Send{Corr: corr, Conn: s.conn, Body: body})
	clear(body)
	return corr
}

func (s *aTalk) hears(question string) effects.Request {
	if ev := until(s.play, B, func(e *effects.Received) bool { return string(e.Body) == question }); ev != nil {
		return ev.Request
	}
	return 0
}

func (s *aTalk) answers(r effects.Request, answer string) {
	body := []byte(answer)
	s.do(B, &effects.Reply{Request: r, Body: body})
	clear(body)
}

// awaitEnd waits for the end of a request and checks the reply, if the request got a reply.
func (s *aTalk) ends(corr effects.Corr, answer string) Ending {
	for s.err == nil {
		at, ev, ok := s.next()
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
				return Ending{Of: Asking}
			}
		case *effects.Unanswered:
			if at == A && e.Corr == corr {
				return Ending{Of: Asking, Code: e.Code}
			}
		default: // Other events do not matter here.
		}
	}
	return Ending{}
}

func asking(name string, ends []Ending, run func(s *aTalk) Ending) Scenario[WireStage] {
	return Scenario[WireStage]{Name: name, May: ends, run: func(p *play, stage WireStage) Ending {
		s := &aTalk{play: p, stage: stage}
		s.conn = s.opens(effects.ChannelAlloc, stage.Serves(effects.ChannelAlloc)).Conn
		return run(s)
	}}
}

// Asks returns the scenarios of control transports.
func Asks() []Scenario[WireStage] {
	return []Scenario[WireStage]{
		asking("a question is answered", may(Asking, effects.OK), func(s *aTalk) Ending {
			corr := s.asks("ping")
			s.answers(s.hears("ping"), "pong")
			return s.ends(corr, "pong")
		}),
		asking("questions follow each other", may(Asking, effects.OK), func(s *aTalk) (end Ending) {
			for _, q := range []string{"one", "two", "three"} {
				corr := s.asks(q)
				s.answers(s.hears(q), "to "+q)
				end = s.ends(corr, "to "+q)
			}
			return end
		}),
		asking("a connection is closed before the answer", may(Asking, effects.Closed), func(s *aTalk) Ending {
			corr := s.asks("slow")
			r := s.hears("slow")
			s.do(A, &effects.Close{Conn: s.conn})
			end := s.ends(corr, "")
			s.answers(r, "too late") // The reply must be dropped: a delivery would be a second completion.
			return end
		}),
		// The reply may be in the mailbox when Close is carried out; the reply then counts.
		asking("a connection is closed while the answer is under way", may(Asking, effects.OK, effects.Closed),
			func(s *aTalk) Ending {
				corr := s.asks("close call")
				s.answers(s.hears("close call"), "just so")
				s.do(A, &effects.Close{Conn: s.conn})
				return s.ends(corr, "just so")
			}),
		asking("a connection is closed behind its answer", may(Asking, effects.OK), func(s *aTalk) Ending {
			corr := s.asks("in time")
			s.answers(s.hears("in time"), "unread")
			waits(s.play, A, func(e *effects.Replied) bool { return e.Corr == corr })
			s.do(A, &effects.Close{Conn: s.conn})
			return s.ends(corr, "unread")
		}),
		// The first reply must never be taken for the reply to the second request (M6).
		asking("a late answer is not taken for the next one", may(Asking, effects.OK), func(s *aTalk) Ending {
			first := s.asks("first")
			late := s.hears("first")
			s.do(A, &effects.Close{Conn: s.conn})
			s.ends(first, "")
			s.conn = s.opens(effects.ChannelAlloc, s.stage.Serves(effects.ChannelAlloc)).Conn
			second := s.asks("second")
			r := s.hears("second")
			s.answers(late, "to the first")
			s.answers(r, "to the second")
			return s.ends(second, "to the second")
		}),
		{Name: "a message is told one way", May: may(Telling, effects.OK), run: func(p *play, stage WireStage) Ending {
			s := &aTalk{play: p, stage: stage}
			s.conn = s.opens(effects.ChannelProxy, stage.Serves(effects.ChannelProxy)).Conn
			corr := s.corr(A)
			s.do(A, &effects.Post{Corr: corr, Conn: s.conn, Body: stage.Note()})
			if ev := until(p, A, func(e *effects.SendDone) bool { return e.Corr == corr }); ev != nil {
				return Ending{Of: Telling, Code: ev.Code}
			}
			return Ending{}
		}},
		// Some transports notice the death; otherwise the machine has to time out.
		asking("the server dies with a question", may(Asking, effects.Closed, effects.PeerLost), func(s *aTalk) Ending {
			corr := s.asks("last")
			s.hears("last")
			s.kill(B)
			s.do(A, &effects.Close{Conn: s.conn})
			return s.ends(corr, "")
		}),
		// Each message has its own completion, with any code, even if there are many messages.
		{Name: "several messages wait on a connection that is closed", May: may(Telling, effects.OK), run: closedOnMany},
		{Name: "a connection to where nobody is", May: may(Opening, effects.OK, effects.Unreachable),
			run: func(p *play, stage WireStage) Ending {
				s := &aTalk{play: p, stage: stage}
				ev := s.opens(effects.ChannelInit, stage.Nowhere())
				end, _ := EndingOf(&ev)
				return end
			}},
	}
}

// closedOnMany sends several one-way messages to a server that dies, closes the connection and waits for the completion
// of each message.
func closedOnMany(p *play, stage WireStage) Ending {
	s := &aTalk{play: p, stage: stage}
	s.conn = s.opens(effects.ChannelProxy, stage.Serves(effects.ChannelProxy)).Conn
	corrs := []effects.Corr{s.tells()}
	eventually(p, A, func(e *effects.SendDone) bool { return e.Corr == corrs[0] })
	s.kill(B)
	for range 8 {
		corrs = append(corrs, s.tells())
	}
	s.do(A, &effects.Close{Conn: s.conn})
	for _, corr := range corrs {
		eventually(p, A, func(e *effects.SendDone) bool { return e.Corr == corr })
	}
	return Ending{Of: Telling}
}

// tells sends a one-way message.
func (s *aTalk) tells() effects.Corr {
	corr := s.corr(A)
	s.do(A, &effects.Post{Corr: corr, Conn: s.conn, Body: s.stage.Note()})
	return corr
}
