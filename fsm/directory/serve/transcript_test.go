package serve

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata/stories are what a directory and workers say to each other. Directives:
//
//	directory [FIELD=N] ...            begins
//	on CHANNEL [conn=N] [bytes]        a message comes; input: itself as JSON, or with bytes as it stands
//	wait N                             so many seconds pass
//
// Each message comes to one machine as JSON and to another one as msgpack: both do the same.
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/stories", func() func(transcript.Directive) string {
		var s stage
		return s.play
	})
}

// A stage is two machines that are told the same, in two forms.
type stage struct{ one, two *rig }

func (s *stage) play(d transcript.Directive) string {
	t, number := d.T, d.IntValue
	var a, b strings.Builder
	switch d.Cmd {
	case "directory":
		begin := func() *rig {
			return newRig(t, func(c *Config) {
				c.Directory.WorkersPerConnection = number("of-source", c.Directory.WorkersPerConnection)
				c.Directory.HashesPerBatch = number("hashes", c.Directory.HashesPerBatch)
				c.Directory.HashesPerLookup = number("prefix", c.Directory.HashesPerLookup)
				c.Directory.Syncs = number("syncs", c.Directory.Syncs)
				c.Directory.Silence = effects.Duration(number("silence", 30)) * effects.Second
			})
		}
		s.one, s.two = begin(), begin()
	case "on":
		ch, ok := effects.ChannelNamed(d.WordAt(0))
		if !ok {
			t.Fatalf("no channel %s", d.CmdArgs[0])
		}
		body, packed := []byte(d.Input), []byte(d.Input)
		if !d.HasArg("bytes") {
			packed = repacked(t, body)
		}
		s.one.hears(ch, effects.Conn(number("conn", 1)), body)
		s.two.hears(ch, effects.Conn(number("conn", 1)), packed)
		s.one.say(t, &a)
		s.two.say(t, &b)
	case "wait":
		until := s.one.now.Add(effects.Duration(d.FirstNumber()) * effects.Second)
		s.one.pass(until, func() { s.one.say(t, &a) })
		s.two.pass(until, func() { s.two.say(t, &b) })
	default:
		d.FailUnknown()
	}
	if a.String() != b.String() {
		t.Fatalf("JSON has it\n%s\nmsgpack\n%s", &a, &b)
	}
	return a.String()
}

// repacked is a message as msgpack.
func repacked(t *testing.T, body []byte) []byte {
	tag, err := protocol.PeekControllerTag(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := protocol.NewMessage(tag)
	if err := m.Decode(body, nil); err != nil {
		t.Fatal(err)
	}
	return m.Append(nil)
}

// say writes what the last step wanted.
func (r *rig) say(t *testing.T, w *strings.Builder) {
	for i := range r.out.Len() {
		switch e := r.out.At(i).(type) {
		case *effects.Reply:
			text, err := protocol.Describe(e.Body, nil)
			if err != nil {
				t.Fatal(err)
			}
			tag, fields, _ := strings.Cut(strings.TrimSpace(text), "\n")
			tag, _, _ = strings.Cut(tag, ",")
			fmt.Fprintf(w, "%s\n", strings.TrimSpace(tag+"\n"+fields))
		case *effects.Observe:
			switch e.Fact {
			case effects.FactDirectory:
				name := strings.TrimSpace(fmt.Sprintf("%s/%d %s", e.Why.Name, e.Count, e.Why.Field))
				fmt.Fprintf(w, "- %s %s\n", name, told[directory.NoteKind(e.ID)])
			case effects.FactMalformed:
				fmt.Fprintf(w, "- refused, %v: %s\n", e.Code, e.Why.Text(e.Code))
			default:
				t.Fatalf("observes %v", e.Fact)
			}
		default:
			t.Fatalf("wants %T", e)
		}
	}
}

// Messages of the stories are those of LMCache's classes: what one says is said again by what Describe makes of it.
func TestAnswersAreLMCaches(t *testing.T) {
	r := newRig(t, nil)
	ask := protocol.BatchedP2PLookupMsg{Worker: worker("a", 0), Hashes: []protocol.ChunkHash{{Bits: 1}}}
	r.hears(effects.ChannelDirectory, 1, ask.Append(nil))
	miss := "\x82\xa4type\xb6BatchedP2PLookupRetMsg\xablayout_info\x91\x94\xa0\xa0\x00\xa0"
	if got := r.answer(t); !bytes.Equal(got, []byte(miss)) {
		t.Errorf("a miss is %q", got)
	}
}
