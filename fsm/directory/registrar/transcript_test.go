package registrar

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata/stories are what a worker says to a directory. Directives:
//
//	worker [plain] [journal=N]         begins; with poll=MS and polls=N it asks for the state of a sync so often
//	admit N ... | evict N ...          chunks come and go
//	look N ...                         somebody asks who has them
//	forget N ...                       what was answered has turned out wrong
//	wait MS                            so many milliseconds pass
//	answer CHANNEL                     the directory answers the question there; input: as JSON, or any bytes;
//	                                   ID is that of the sync
//	lose CHANNEL                       the connection is lost
//	refuse N                           the next N connections or messages are refused
//	leave                              the worker is to be forgotten
//
// Connections open, and what is told is handed over, at once.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/stories", func() func(transcript.Directive) string {
		return (&scene{conns: map[effects.Conn]effects.Channel{}}).play
	})
}

type scene struct {
	*rig
	conns   map[effects.Conn]effects.Channel
	asked   []unanswered
	last    effects.Conn
	refused int
	said    strings.Builder
}

type unanswered struct {
	corr effects.Corr
	conn effects.Conn
}

func (s *scene) play(d transcript.Directive) string {
	s.said.Reset()
	t, numbers := d.T, d.BareNumbers()
	switch d.Cmd {
	case "worker":
		s.rig = newRig(t, d.IntValue("journal", 100), func(c *Config) {
			c.Directories[0].Plain = d.HasArg("plain")
			c.SyncPoll = effects.Duration(d.IntValue("poll", int(c.SyncPoll/effects.Millisecond))) * effects.Millisecond
			c.SyncPollsMax = uint32(d.IntValue("polls", int(c.SyncPollsMax)))
		})
		s.hears(t, &effects.Tick{})
	case "admit", "evict":
		for _, n := range numbers {
			if d.Cmd == "admit" {
				s.admit(n)
			} else {
				s.evict(n)
			}
		}
		s.hears(t, &effects.Tick{})
	case "look", "forget":
		var keys [][]byte
		for _, n := range numbers {
			keys = append(keys, keyOf(n))
		}
		if d.Cmd == "forget" {
			s.Lookups.ForgetReply(keys)
			break
		}
		s.out.Reset()
		v := s.env()
		s.Lookups.StartLookup(&v, kernel.Ref{}, keys)
		s.carry(t)
	case "wait":
		s.passes(t, s.now.Add(effects.Duration(d.FirstNumber())*effects.Millisecond))
	case "answer", "lose":
		ch, ok := effects.ChannelNamed(d.WordAt(0))
		if !ok {
			t.Fatalf("no channel %s", d.CmdArgs[0])
		}
		s.answers(ch, d)
	case "refuse":
		s.refused = d.FirstNumber()
	case "leave":
		s.out.Reset()
		v := s.env()
		s.Registrar.Leave(&v, &s.store)
		s.carry(t)
		fmt.Fprintf(&s.said, "%d left\n", s.Registrar.CountActive())
	default:
		d.FailUnknown()
	}
	return s.said.String()
}

// answers has the directory answer the oldest question on a channel, or the connection end there.
func (s *scene) answers(ch effects.Channel, d transcript.Directive) {
	t := d.T
	if d.Cmd == "lose" {
		for id := s.last; id > 0; id-- {
			if s.conns[id] == ch {
				s.hears(t, &effects.ConnLost{Conn: id})
				return
			}
		}
	}
	n := slices.IndexFunc(s.asked, func(a unanswered) bool { return s.conns[a.conn] == ch })
	if n < 0 {
		t.Fatalf("%s: nobody asks on %v", d.Pos, ch)
	}
	corr := s.asked[n].corr
	s.asked = slices.Delete(s.asked, n, n+1)
	s.hears(t, &effects.Replied{Corr: corr,
		Body: []byte(strings.ReplaceAll(d.Input, "ID", string(s.Registrar.directories[0].sync.idText())))})
}

func (s *scene) passes(t *testing.T, until effects.Time) {
	from := s.now
	for at, ok := s.Deadline(); ok && at <= until; at, ok = s.Deadline() {
		s.now = max(s.now, at)
		before := s.said.Len()
		s.hears(t, &effects.Tick{})
		if s.said.Len() > before {
			text := s.said.String()
			s.said.Reset()
			fmt.Fprintf(&s.said, "%safter %v:\n%s", text[:before], s.now.Sub(from), text[before:])
		}
	}
	s.now = until
}

func (s *scene) hears(t *testing.T, ev effects.Event) {
	s.step(ev)
	s.carry(t)
}

// carry does what the worker wants, and says so.
func (s *scene) carry(t *testing.T) {
	var next []effects.Event
	for _, a := range s.Lookups.Results() {
		fmt.Fprintf(&s.said, "lookup: %v", a.Code)
		for _, h := range a.Holders {
			fmt.Fprintf(&s.said, ", %s has %d in %s at %v", h.Instance, h.Chunks, h.Location, h.At)
		}
		s.said.WriteString("\n")
	}
	s.Lookups.ClearResults()
	for i := range s.out.Len() {
		switch e := s.out.At(i).(type) {
		case *effects.Open:
			fmt.Fprintf(&s.said, "opens %v %v\n", e.Channel, e.Addr)
			if s.refuses() {
				next = append(next, &effects.Opened{Corr: e.Corr, Code: effects.Unreachable})
				continue
			}
			s.last++
			s.conns[s.last] = e.Channel
			next = append(next, &effects.Opened{Corr: e.Corr, Conn: s.last})
		case *effects.Close:
			fmt.Fprintf(&s.said, "closes %v\n", s.conns[e.Conn])
			for _, a := range s.asked {
				if a.conn == e.Conn {
					next = append(next, &effects.Unanswered{Corr: a.corr, Code: effects.Closed})
				}
			}
			s.asked = slices.DeleteFunc(s.asked, func(a unanswered) bool { return a.conn == e.Conn })
			delete(s.conns, e.Conn)
		case *effects.Send:
			fmt.Fprintf(&s.said, "asks %s\n", line1(t, e.Body))
			s.asked = append(s.asked, unanswered{e.Corr, e.Conn})
		case *effects.Post:
			fmt.Fprintf(&s.said, "tells %s\n", line1(t, e.Body))
			code := effects.OK
			if s.refuses() {
				code = effects.Refused
			}
			next = append(next, &effects.SendDone{Corr: e.Corr, Code: code})
		default:
			t.Fatalf("the worker wants %T", e)
		}
	}
	for _, ev := range next {
		s.hears(t, ev)
	}
}

func (s *scene) refuses() bool {
	s.refused--
	return s.refused >= 0
}

// line1 is a message in a line.
func line1(t *testing.T, body []byte) string {
	text, err := protocol.Describe(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(text, "type:")
	words := strings.Fields(fields)
	return strings.Trim(words[0], `"`) + " " + strings.Join(words[1:], " ")
}
