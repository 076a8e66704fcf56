package controltest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/reserve"
)

// runScenarios plays the scenarios of package contract. A scenario that may end in several ways is played several
// times; the transport decides between the possible endings.
func runScenarios(t *testing.T, open control.Opener, host string) {
	for _, s := range slices.Concat(contract.Requests(), contract.ConcurrentRequests()) {
		t.Run(s.Name, func(t *testing.T) {
			rounds := 1
			if len(s.Endings) > 1 {
				rounds = 20
			}
			ends := map[contract.Ending]int{}
			for range rounds {
				end, err := s.Run(newStage(t, open, host))
				if err != nil {
					t.Fatal(err)
				}
				ends[end]++
			}
			if rounds > 1 {
				t.Log(ends)
			}
		})
	}
}

// A stage is a client and a server, with transports that post into a common queue. stage implements contract.Stage.
type stage struct {
	t          *testing.T
	host       string
	transports [2]control.Transport

	mu       sync.Mutex
	posted   []postedEvent
	changed  chan struct{} // closed and replaced at each event
	finished bool
}

type postedEvent struct {
	end contract.End
	ev  effects.Event
}

// endSink is the sink of the transport at an end.
type endSink struct {
	stage *stage
	end   contract.End
}

// Post implements control.Sink.
func (m endSink) Post(ev effects.Event) {
	s := m.stage
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posted = append(s.posted, postedEvent{m.end, ev})
	close(s.changed)
	s.changed = make(chan struct{})
}

func newStage(t *testing.T, open control.Opener, host string) *stage {
	t.Helper()
	s := &stage{t: t, host: host, changed: make(chan struct{})}
	free := effects.Addr{Host: host}
	for at, servers := range [2][]control.Server{contract.B: {
		{Channel: effects.ChannelInit, Addr: free}, {Channel: effects.ChannelAlloc, Addr: free},
		{Channel: effects.ChannelProxy, Addr: free}, {Channel: effects.ChannelLookup, Addr: free},
		{Channel: effects.ChannelMeta, Addr: free},
	}} {
		var err error
		if s.transports[at], err = open(control.Env{Servers: servers, Sink: endSink{s, contract.End(at)}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Kill(contract.End(at)) })
	}
	return s
}

// Do implements contract.Stage.
func (s *stage) Do(at contract.End, e effects.Effect) {
	x := s.transports[at]
	switch e := e.(type) {
	case *effects.Open:
		x.Open(e)
	case *effects.Close:
		x.Close(e.Conn)
	case *effects.Send:
		x.Send(e)
	case *effects.Post:
		x.Post(e)
	case *effects.Reply:
		x.Reply(e)
	default:
		s.t.Fatalf("%T is no effect of a control transport", e)
	}
}

// Next implements contract.Stage.
func (s *stage) Next() (contract.End, effects.Event, bool) {
	late := time.NewTimer(eventTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		if len(s.posted) > 0 {
			x := s.posted[0]
			s.posted = s.posted[1:]
			s.mu.Unlock()
			return x.end, x.ev, true
		}
		more, finished := s.changed, s.finished
		s.mu.Unlock()
		if finished {
			return 0, nil, false
		}
		select {
		case <-more:
		case <-late.C:
			return 0, nil, false
		}
	}
}

// Kill implements contract.Stage. A server that was shut down behaves like a server that died: no reply arrives.
func (s *stage) Kill(at contract.End) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if err := s.transports[at].Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
}

// Finish implements contract.Stage.
func (s *stage) Finish() {
	s.Kill(contract.A)
	s.Kill(contract.B)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
}

// ServerAddr implements contract.WireStage.
func (s *stage) ServerAddr(ch effects.Channel) effects.Addr {
	for _, server := range s.transports[contract.B].Servers() {
		if server.Channel == ch {
			return server.Addr
		}
	}
	s.t.Fatalf("nobody serves %v", ch)
	return effects.Addr{}
}

// OneWayBody implements contract.WireStage.
func (s *stage) OneWayBody() []byte { return []byte("done") }

// UnusedAddr implements contract.WireStage. The result is a port that stays free for as long as the test runs.
func (s *stage) UnusedAddr() effects.Addr {
	port, err := reserve.Open(s.host)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = port.Close() })
	return port.Addr()
}
