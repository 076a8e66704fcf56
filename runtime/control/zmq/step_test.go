package zmq_test

import (
	"context"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// A stepped sink counts the messages that were posted while a goroutine held it, and passes on all events when it is
// stepped.
type stepped struct {
	t *testing.T

	mu       sync.Mutex
	holds    int
	unheld   int // messages that were posted without a hold
	waiting  []effects.Event
	received chan *effects.Received
	replied  chan *effects.Replied
	opened   chan *effects.Opened
}

func newStepped(t *testing.T) *stepped {
	return &stepped{t: t, received: make(chan *effects.Received, 8), replied: make(chan *effects.Replied, 8),
		opened: make(chan *effects.Opened, 8)}
}

func (s *stepped) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds++
}

func (s *stepped) Post(ev effects.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev := ev.(type) {
	case *effects.Received, *effects.Replied:
		if s.holds == 0 {
			s.unheld++
		}
		s.waiting = append(s.waiting, ev)
	case *effects.Opened:
		s.opened <- ev
	}
}

func (s *stepped) Step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds--
	for _, ev := range s.waiting {
		switch ev := ev.(type) {
		case *effects.Received:
			s.received <- ev
		case *effects.Replied:
			s.replied <- ev
		}
	}
	s.waiting = nil
}

func (s *stepped) wantAllHeld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unheld > 0 || s.holds != 0 {
		s.t.Errorf("%d messages were posted without a hold, and %d holds are left", s.unheld, s.holds)
	}
}

// The goroutine that reads a message steps the machine with it, for requests, replies and one-way messages.
func TestReaderStepsMachine(t *testing.T) {
	ctx := context.Background()
	server, client := newStepped(t), newStepped(t)
	serving, err := zmq.Config{}.Opener()(control.Env{Sink: server, Servers: []control.Server{
		{Channel: effects.ChannelAlloc, Addr: local}, {Channel: effects.ChannelDone, Addr: local}}})
	if err != nil {
		t.Fatal(err)
	}
	calling, err := zmq.Config{}.Opener()(control.Env{Sink: client})
	if err != nil {
		t.Fatal(err)
	}
	open := func(i int) effects.Conn {
		at := serving.Servers()[i]
		calling.Open(&effects.Open{Corr: effects.Corr(1 + i), Channel: at.Channel, Addr: at.Addr})
		return (<-client.opened).Conn
	}
	calling.Send(&effects.Send{Corr: 10, Conn: open(0), Body: []byte("question")})
	question := <-server.received
	serving.Reply(&effects.Reply{Request: question.Request, Body: []byte("answer")})
	if got := <-client.replied; got.Corr != 10 || string(got.Body) != "answer" {
		t.Errorf("answered %+v", got)
	}
	calling.Post(&effects.Post{Corr: 11, Conn: open(1), Body: []byte("word")})
	if got := <-server.received; string(got.Body) != "word" {
		t.Errorf("told %q", got.Body)
	}
	for _, transport := range []control.Transport{calling, serving} {
		if err := transport.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}
	server.wantAllHeld()
	client.wantAllHeld()
}
