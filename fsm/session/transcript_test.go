package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata are stories of an agent and its engines. Connections are c1, c2 and so on, processes p1,
// p2; a call is named by its session and its number, as 1.3. Directives:
//
//	agent [window=N] [sessions=N] [holdings=N] [blocks] begins
//	attach CONN PROCESS [name=NAME] [session=N] [life=old] [open=(N,...)] [v=N] [adopts]
//	call CONN ID OP [target=N] [prefill=N] [done=(N,...)] [count=N] [patience=N]
//	shown CONN ID [first=N] [code=N]
//	garbage CONN [PROCESS|shown|call]                   no message, or more than one; of a process: its first
//	ended CALL [CODE] [brought] [stands] [held] [pages=(N,...)]
//	returned CALL
//	show CALL [first=N] pages=(N,...)
//	freed SESSION HOLDING
//	cut CONN / exited PROCESS / drain / who CONN
//
// What the machine wants is printed in the order in which a driver carries it out, and what stands then.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata", func() func(transcript.Directive) string { return (&story{}).directive })
}

// A story is one agent.
type story struct {
	t   *testing.T
	m   *Machine
	out Effects
	log strings.Builder
}

var lives = map[string]protocol.UUID{"": {1}, "old": {2}}

func (s *story) number(text string) uint64 {
	s.t.Helper()
	n, err := strconv.ParseUint(strings.TrimLeft(text, "cp"), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *story) call(text string) CallRef {
	session, id, ok := strings.Cut(text, ".")
	if !ok {
		s.t.Fatalf("%q is no call", text)
	}
	return CallRef{s.number(session), s.number(id)}
}

func (s *story) directive(d transcript.Directive) string {
	s.t = d.T
	s.log.Reset()
	s.out.Reset()
	arg, has, list, word := d.WordAt, d.HasArg, d.UintValues, d.Value
	number := func(key string, otherwise int) uint64 { return uint64(d.IntValue(key, otherwise)) }
	switch d.Cmd {
	case "agent":
		lim := protocol.DefaultLimits()
		s.m = New(Config{
			Response: protocol.AttachResponse{
				Version: protocol.AttachVersion, Incarnation: lives[""], Offset: 4096, PageBytes: 8192, Pages: 16,
				Window: uint32(number("window", 8)), Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeBFloat16,
				Shape:     protocol.Shape{Dims: [protocol.ShapeRank]uint32{2, 1, 16, 2}, N: 4},
				DeviceKey: []byte(word("device-key")),
			},
			SessionsMax: int(number("sessions", 4)), ProcessMax: int(number("share", 4)),
			HoldingsMax: int(number("holdings", 8)), CallBytesMax: int(number("bytes", 1<<20)), Wire: lim,
		})
		if has("blocks") {
			s.m.cfg.Response.Sides = [][]byte{[]byte("blocks")}
		}
	case "attach":
		m := protocol.AttachRequest{
			Version: uint32(number("v", protocol.AttachVersion)), Name: []byte(word("name")), Session: number("session", 0),
			Open: list("open"), Process: uint32(number("device-process", 0)),
			Adopts: has("adopts"),
		}
		if m.Session != 0 {
			m.Incarnation = lives[word("life")]
		}
		s.m.HandleAttach(Conn(s.number(arg(0))), Process(s.number(arg(1))), m.Append(nil), &s.out)
	case "call":
		m := protocol.EngineCall{
			ID: s.number(arg(1)), Op: []byte(arg(2)), Target: number("target", 0), Prefill: number("prefill", 0),
			Done: list("done"), Count: uint32(number("count", 0)), PatienceNS: number("patience", 0),
		}
		for range number("keys", 0) {
			m.Keys = append(m.Keys, []byte("k"))
		}
		s.m.HandleMessage(Conn(s.number(arg(0))), m.Append(nil), &s.out)
	case "shown":
		m := protocol.EngineShown{ID: s.number(arg(1)), First: uint32(number("first", 0)), Code: uint32(number("code", 0))}
		s.m.HandleMessage(Conn(s.number(arg(0))), m.Append(nil), &s.out)
	case "garbage":
		body := []byte{0xC1}
		switch {
		case has("shown"):
			body = append((&protocol.EngineShown{ID: 1}).Append(nil), body...)
		case has("call"):
			body = append((&protocol.EngineCall{ID: 1, Op: []byte("stats")}).Append(nil), body...)
		case len(d.CmdArgs) > 1:
			s.m.HandleAttach(Conn(s.number(arg(0))), Process(s.number(arg(1))), body, &s.out)
			return s.told()
		}
		s.m.HandleMessage(Conn(s.number(arg(0))), body, &s.out)
	case "ended":
		of := s.call(arg(0))
		m := protocol.EngineAnswer{ID: of.ID, Held: has("held"), Pages: list("pages")}
		m.Lengths = make([]uint64, len(m.Pages))
		if len(d.CmdArgs) > 1 {
			if code, ok := transcript.CodeNamed(d.CmdArgs[1].Key); ok && has(arg(1)) {
				m.Code = uint32(code)
			}
		}
		s.m.OnCallEnded(of, &m, has("brought"), has("stands"), &s.out)
	case "returned":
		s.m.OnMemoryReturned(s.call(arg(0)), &s.out)
	case "show":
		pages := list("pages")
		s.m.ShowChunks(s.call(arg(0)), int(number("first", 0)), pages, make([]uint64, len(pages)), &s.out)
	case "freed":
		s.m.OnHoldingFreed(s.number(arg(0)), s.number(arg(1)), &s.out)
	case "cut":
		s.m.OnConnLost(Conn(s.number(arg(0))), &s.out)
	case "exited":
		s.m.OnProcessExit(Process(s.number(arg(0))), &s.out)
	case "drain":
		s.m.Drain(&s.out)
	case "who":
		who := s.m.EngineOf(Conn(s.number(arg(0))))
		fmt.Fprintf(&s.log, "session %d, %q\n", who.ID, who.Name)
	default:
		d.FailUnknown()
	}
	return s.told()
}

// told prints what the machine wants, and what stands.
func (s *story) told() string {
	s.wants()
	calls, holdings := s.m.Totals()
	fmt.Fprintf(&s.log, "-- %d attached, %d calls, %d held", s.m.CountSessions(), calls, holdings)
	for _, x := range s.m.sessions {
		for _, h := range x.holdings {
			fmt.Fprintf(&s.log, "; %d.%d %v", x.id, h.id, h.kind)
			if h.users > 0 {
				fmt.Fprintf(&s.log, " in %d uses", h.users)
			}
		}
	}
	s.log.WriteString("\n")
	return s.log.String()
}

// wants prints what is to be done.
func (s *story) wants() {
	o := &s.out
	for _, x := range o.Sends {
		fmt.Fprintf(&s.log, "c%d <- %s\n", x.Conn, s.said(x))
	}
	for _, x := range o.Begins {
		fmt.Fprintf(&s.log, "begin %d.%d %v", x.Session, x.ID, x.Op)
		if x.Body.ID != x.ID {
			s.t.Errorf("call %d is begun with the body of call %d", x.ID, x.Body.ID)
		}
		for _, f := range []struct {
			name string
			n    uint64
		}{{"target", x.Body.Target}, {"prefill", x.Body.Prefill}, {"patience", x.Body.PatienceNS}} {
			if f.n != 0 {
				fmt.Fprintf(&s.log, " %s=%d", f.name, f.n)
			}
		}
		s.log.WriteString("\n")
	}
	for _, x := range o.Aborts {
		fmt.Fprintf(&s.log, "abort %d.%d\n", x.Session, x.ID)
	}
	for _, x := range o.ShowResults {
		fmt.Fprintf(&s.log, "shown %d.%d %v\n", x.Session, x.ID, x.Code)
	}
	for _, x := range o.Frees {
		fmt.Fprintf(&s.log, "free %d.%d %v\n", x.Session, x.Holding, x.Kind)
	}
	for _, x := range o.Closes {
		fmt.Fprintf(&s.log, "close c%d: %s\n", x.Conn, x.Why)
	}
	for _, id := range o.EndedSessions {
		fmt.Fprintf(&s.log, "session %d is no more\n", id)
	}
}

// said is a message in words.
func (s *story) said(x Send) string {
	lim := protocol.DefaultLimits()
	var attached protocol.AttachResponse
	var answer protocol.EngineAnswer
	var show protocol.EngineShow
	var returned protocol.EngineReturned
	switch {
	case protocol.MayHaveTag(x.Body, protocol.TagAttachResponse, &lim):
		if err := attached.Decode(x.Body, &lim); err != nil {
			s.t.Fatal(err)
		}
		if x.WithMemory != (attached.Code == 0) {
			s.t.Errorf("the file goes with an answer of code %d: %v", attached.Code, x.WithMemory)
		}
		if attached.Code != 0 {
			return fmt.Sprintf("turned away, %v: %s", effects.Code(attached.Code), attached.Reason)
		}
		text := fmt.Sprintf("attached, session %d, window %d", attached.Session, attached.Window)
		if attached.Resumed {
			text += ", resumed"
		}
		return text
	case protocol.MayHaveTag(x.Body, protocol.TagEngineAnswer, &lim):
		if err := answer.Decode(x.Body, &lim); err != nil {
			s.t.Fatal(err)
		}
		text := fmt.Sprintf("answer %d, %v", answer.ID, effects.Code(answer.Code))
		if len(answer.Field) > 0 {
			text += fmt.Sprintf(" (%s is %s; %s; %s)", answer.Field, answer.Theirs, answer.Ours, answer.Remedy)
		}
		if len(answer.Pages) > 0 {
			text += fmt.Sprintf(", pages %d", answer.Pages)
		}
		if answer.Held {
			text += ", held"
		}
		return text
	case protocol.MayHaveTag(x.Body, protocol.TagEngineShow, &lim):
		if err := show.Decode(x.Body, &lim); err != nil {
			s.t.Fatal(err)
		}
		return fmt.Sprintf("show of %d, from %d, pages %d", show.ID, show.First, show.Pages)
	}
	if err := returned.Decode(x.Body, &lim); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("returned %d", returned.ID)
}
