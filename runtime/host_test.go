package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

const echoChannel = effects.ChannelOther

// echo answers with what it is asked, and each command by the answer that it gets: "drain" at once.
type echo struct {
	to     effects.Addr
	ticket effects.Ticket
	word   string
	conn   effects.Conn
	until  effects.Time
}

type say struct{ word string }

func (*say) IsCommand() {}

func (x *echo) Deadline() (effects.Time, bool) { return x.until, x.ticket != 0 }

func (x *echo) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Received:
		out.Reply(effects.Reply{Request: e.Request, Body: out.Cut(append(out.Arena(), e.Body...))})
	case *effects.Command:
		switch word := e.Body.(*say).word; word {
		case "drain":
			out.Observe(effects.Observe{Fact: effects.FactOther, ID: 7})
			out.Deliver(effects.Deliver{Ticket: e.Ticket})
		case "grant":
			out.Revoke(1)
		default:
			x.ticket, x.word, x.until = e.Ticket, word, now.Add(10*effects.Second)
			out.Open(effects.Open{Corr: 1, Channel: echoChannel, Addr: x.to})
		}
	case *effects.Opened:
		x.conn = e.Conn
		out.Send(effects.Send{Corr: 2, Conn: e.Conn, Body: out.Cut(append(out.Arena(), x.word...))})
	case *effects.Replied:
		code := effects.OK
		if string(e.Body) != x.word {
			code = effects.Malformed
		}
		out.Deliver(effects.Deliver{Ticket: x.ticket, Code: code})
		out.Close(x.conn)
		x.ticket = 0
	case *effects.Tick:
		if x.ticket != 0 && now >= x.until {
			out.Deliver(effects.Deliver{Ticket: x.ticket, Code: effects.Expired})
			x.ticket = 0
		}
	}
}

// TestHost: a machine of somebody's own talks to another over real sockets; a closed host ends what is in progress, and
// takes no more.
func TestHost(t *testing.T) {
	server := mustHost(t, runtime.HostConfig{
		NewMachine: func(effects.Time, []control.Server) (effects.Machine, error) { return &echo{}, nil },
		Servers:    []control.Server{{Channel: echoChannel, Addr: effects.Addr{Host: "127.0.0.1"}}},
	})
	at := server.Servers()[0].Addr
	facts := make(chan uint64, 1)
	asker := mustHost(t, runtime.HostConfig{
		NewMachine: func(effects.Time, []control.Server) (effects.Machine, error) { return &echo{to: at}, nil },
		Drain:      &say{"drain"}, OnObserve: func(o *effects.Observe) { facts <- o.ID },
	})
	for _, word := range []string{"one", "two"} {
		ticket, err := asker.Submit(&say{word})
		if err != nil {
			t.Fatal(err)
		}
		if out := <-ticket.Done(); out.Code != effects.OK {
			t.Errorf("%s ends as %s", word, out.Code)
		}
	}
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, err := asker.Submit(&say{"three"})
	if err != nil {
		t.Fatal(err)
	}
	if err := asker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := <-facts; id != 7 {
		t.Errorf("it was not told to drain: %d", id)
	}
	if out := <-last.Done(); out.Code != effects.Closed {
		t.Errorf("what was in progress ends as %s", out.Code)
	}
	var refused *runtime.Error
	if _, err := asker.Submit(&say{"four"}); !errors.As(err, &refused) || refused.Code != effects.Closed {
		t.Errorf("a closed host takes a command: %v", err)
	}
	if err := asker.Close(t.Context()); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestHostRefuses: what cannot be opened is said, and leaves nothing behind.
func TestHostRefuses(t *testing.T) {
	broken := errors.New("no such lock")
	makes := func(err error) func(effects.Time, []control.Server) (effects.Machine, error) {
		return func(effects.Time, []control.Server) (effects.Machine, error) { return &echo{}, err }
	}
	deaf := func(control.Env) (control.Transport, error) { return nil, broken }
	for want, cfg := range map[string]runtime.HostConfig{
		"Machine and Control": {},
		"no such lock":        {Control: zmq.Config{}.Opener(), NewMachine: makes(broken)},
		"the control sockets": {Control: deaf, NewMachine: makes(nil)},
	} {
		if h, err := runtime.OpenHost(cfg); h != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}

func mustHost(t *testing.T, cfg runtime.HostConfig) *runtime.Host {
	t.Helper()
	cfg.Control = zmq.Config{}.Opener()
	h, err := runtime.OpenHost(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return h
}
