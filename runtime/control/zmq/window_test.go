package zmq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// gets reads one message and compares its frames.
func (s *stranger) gets(want ...string) {
	s.t.Helper()
	r := zmtp.Reader{R: s.in, Limits: zmtp.Limits{Frames: 100, Bytes: 16 << 20}}
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	m, err := r.Next()
	got := make([]string, len(m.Frames))
	for i, f := range m.Frames {
		got[i] = string(f)
	}
	if err != nil || !slices.Equal(got, want) {
		s.t.Fatalf("got %q instead of %q: %v", got, want, err)
	}
}

const zeros = "\x00\x00\x00\x00\x00\x00\x00"

const id1, id2, id3 = zeros + "\x01", zeros + "\x02", zeros + "\x03"

// Only a Conn with a window sends ids: in lockstep the bytes are exactly those of a REQ.
func TestFramesOfRequests(t *testing.T) {
	parts := func(list ...string) (body []byte) {
		for _, p := range list {
			body = effects.AppendPart(body, []byte(p))
		}
		return body
	}
	for name, c := range map[string]struct {
		channel effects.Channel
		window  uint16
		asked   []byte
		wire    []string
		answer  []string
		reply   []byte
	}{
		"lockstep":        {effects.ChannelAlloc, 0, []byte("q"), []string{"", "q"}, []string{"", "a"}, []byte("a")},
		"a window of one": {effects.ChannelAlloc, 1, []byte("q"), []string{"", "q"}, []string{"", "a"}, []byte("a")},
		"a window": {effects.ChannelAlloc, 2, []byte("q"), []string{id1, "", "q"}, []string{id1, "", "a"},
			[]byte("a")},
		"an empty body":         {effects.ChannelAlloc, 2, nil, []string{id1, "", ""}, []string{id1, "", ""}, nil},
		"a bare id":             {effects.ChannelLookup, 2, []byte("q"), []string{id1, "q"}, []string{id1, "a"}, []byte("a")},
		"a bare id in lockstep": {effects.ChannelLookup, 0, []byte("q"), []string{id1, "q"}, []string{id1, "a"}, []byte("a")},
		"parts": {effects.ChannelMeta, 0, parts("q"), []string{"", "q"}, []string{"", "a", "", "b"},
			parts("a", "", "b")},
	} {
		t.Run(name, func(t *testing.T) {
			client, h := controltest.Start(t, zmq.Config{}.Opener()), newHandServer(t)
			conn := client.DialMany(c.channel, c.window, h.addr)
			s := h.accept().greets("ROUTER")
			corr := client.SendRequest(conn, string(c.asked))
			s.gets(c.wire...)
			s.says(c.answer...)
			client.WantReply(corr, string(c.reply))
		})
	}
}

// A malformed body of parts is a defect of the machine, and is not sent.
func TestBodiesOfPartsAreWhole(t *testing.T) {
	client, h := controltest.Start(t, zmq.Config{}.Opener()), newHandServer(t)
	conn := client.Dial(effects.ChannelMeta, h.addr)
	h.accept().greets("ROUTER")
	whole := effects.AppendPart(nil, []byte("part"))
	for _, body := range [][]byte{nil, whole[:len(whole)-1], append(slices.Clone(whole), 1), slices.Repeat(whole, 65)} {
		client.WantUnanswered(client.SendRequest(conn, string(body)), effects.Invalid)
	}
}

// A reply to none of the connection's requests is dropped and counted, and the connection continues: an id that was
// answered, one that was never used, and one whose request has not left.
func TestRepliesWithUnknownIDs(t *testing.T) {
	config, lines := quietConfig(zmq.Config{})
	client, h := controltest.Start(t, config.Opener()), newHandServer(t)
	conn := client.DialMany(effects.ChannelAlloc, 4, h.addr)
	s := h.accept().greets("ROUTER")
	one, two := client.SendRequest(conn, "one"), client.SendRequest(conn, "two")
	s.gets(id1, "", "one")
	s.gets(id2, "", "two")
	s.says(id2, "", "to two")
	client.WantReply(two, "to two")
	s.says(id2, "", "to two, again")
	s.says(id3, "", "to nobody")
	s.says("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "", "to nobody")
	s.says(id1, "", "to one")
	client.WantReply(one, "to one")
	three := client.SendRequest(conn, "three")
	s.gets(id3, "", "three")
	s.says(id3, "", "to three")
	client.WantReply(three, "to three")
	if n := client.Stats().Unrequested; n != 3 {
		t.Errorf("%d replies without a request were counted", n)
	}
	lines.await(t, "is dropped")
}

// A reply without an id ends all requests that the connection had, and none of them is sent again. The next request
// uses another connection, under an id of its own.
func TestRepliesWithoutID(t *testing.T) {
	for name, frames := range map[string][]string{
		"of a REP": {"", "answer"}, "of seven bytes": {id1[1:], "", "answer"},
		"of nine bytes": {id1 + "1", "", "answer"}, "no empty frame": {id1, "x", "answer"}, "no body": {id1, ""},
		"nothing else": {id1}, "two bodies": {id1, "", "a", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			config, _ := quietConfig(zmq.Config{})
			client, h := controltest.Start(t, config.Opener()), newHandServer(t)
			conn := client.DialMany(effects.ChannelAlloc, 2, h.addr)
			s := h.accept().greets("ROUTER")
			one, two := client.SendRequest(conn, "one"), client.SendRequest(conn, "two")
			s.gets(id1, "", "one")
			s.gets(id2, "", "two")
			s.says(frames...)
			s.ends()
			client.WantUnanswered(one, effects.Malformed)
			client.WantUnanswered(two, effects.Malformed)
			three := client.SendRequest(conn, "three")
			s = h.accept().greets("ROUTER")
			s.gets(id3, "", "three")
			s.says(id3, "", "to three")
			client.WantReply(three, "to three")
			if n := client.Stats().Malformed; n != 1 {
				t.Errorf("%d malformed answers were counted", n)
			}
		})
	}
}

// A connection takes its requests with it when it ends; those that wait go to the next connection, in their order.
func TestPendingRequestsSurviveConnection(t *testing.T) {
	config, _ := quietConfig(zmq.Config{Reconnect: time.Millisecond, ReconnectMax: time.Millisecond})
	client, h := controltest.Start(t, config.Opener()), newHandServer(t)
	conn := client.DialMany(effects.ChannelAlloc, 4, h.addr)
	s := h.accept() // It shakes no hands: what is asked waits.
	one, two := client.SendRequest(conn, "one"), client.SendRequest(conn, "two")
	_ = s.Close()
	s = h.accept().greets("ROUTER")
	s.gets(id1, "", "one")
	s.gets(id2, "", "two")
	_ = s.Close()
	client.WantUnanswered(one, effects.PeerLost)
	client.WantUnanswered(two, effects.PeerLost)
	three := client.SendRequest(conn, "three")
	s = h.accept().greets("ROUTER")
	s.gets(id3, "", "three")
	s.says(id3, "", "to three")
	client.WantReply(three, "to three")
}

// A server returns the frames before a body: of lookups all frames but the last one, with or without an empty one.
func TestLookupsAreAnswered(t *testing.T) {
	server, addr := serve(t, effects.ChannelLookup)
	s := knock(t, addr).greets("DEALER")
	for i, envelope := range [][]string{{id1}, {""}, {}, {"name", "", id2}} {
		s.says(append(slices.Clone(envelope), "question")...)
		nth := func(e *effects.Received) bool { return e.Request == effects.Request(i+1) }
		got := controltest.Await(t, server.Recorder, nth)
		if string(got.Body) != "question" {
			t.Fatalf("it heard %q", got.Body)
		}
		server.SendReply(got.Request, "answer")
		s.gets(append(slices.Clone(envelope), "answer")...)
	}
}

// Parts are carried as frames, whatever precedes them; a malformed reply is dropped and counted.
func TestPartsAreServed(t *testing.T) {
	server, addr := serve(t, effects.ChannelMeta)
	s := knock(t, addr).greets("DEALER")
	body := effects.AppendPart(effects.AppendPart(nil, []byte("a")), nil)
	s.says("name", "", "a", "")
	asked := server.AwaitReceived(string(body))
	server.SendReply(asked.Request, string(body[:len(body)-1]))
	s.says("", "a", "")
	got := controltest.Await(t, server.Recorder, func(e *effects.Received) bool { return e.Request == asked.Request+1 })
	server.SendReply(got.Request, string(body))
	s.gets("", "a", "")
	if n := server.Stats().RepliesDropped; n != 1 {
		t.Errorf("%d answers were dropped", n)
	}
	s.says(append([]string{""}, slices.Repeat([]string{"x"}, 65)...)...)
	got = controltest.Await(t, server.Recorder, func(e *effects.Received) bool { return e.Request == asked.Request+2 })
	if len(got.Body) != 0 {
		t.Errorf("65 parts are a body of %d bytes", len(got.Body))
	}
}
