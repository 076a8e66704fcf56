package valkey_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// other is the transport for all other channels. It records its calls.
type other struct{ given []string }

func (o *other) Open(*effects.Open)               { o.given = append(o.given, "open") }
func (o *other) Close(effects.Conn)               { o.given = append(o.given, "close") }
func (o *other) Send(*effects.Send)               { o.given = append(o.given, "send") }
func (o *other) Post(*effects.Post)               { o.given = append(o.given, "post") }
func (o *other) Reply(*effects.Reply)             { o.given = append(o.given, "reply") }
func (*other) Caller(effects.Conn) netip.Addr     { return netip.Addr{} }
func (*other) Servers() []control.Server          { return nil }
func (*other) Stats() control.Stats               { return control.Stats{} }
func (*other) Shutdown(ctx context.Context) error { return ctx.Err() }

// rig is a transport with one connection to a server.
type rig struct {
	control.Transport
	t      *testing.T
	server *valkeytest.Server
	other  *other
	said   chan effects.Event
	corr   effects.Corr
	conn   effects.Conn
}

func (r *rig) Post(e effects.Event) { r.said <- e }

func newRig(t *testing.T) *rig {
	r := &rig{t: t, server: valkeytest.Start(t), other: &other{}, said: make(chan effects.Event, 64)}
	open := func(control.Env) (control.Transport, error) { return r.other, nil }
	var err error
	r.Transport, err = valkey.WithLog(open, valkey.Config{Stream: "log"})(control.Env{
		Sink: r, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	r.connect()
	return r
}

func (r *rig) next() effects.Event {
	r.t.Helper()
	select {
	case e := <-r.said:
		return e
	case <-time.After(patience):
		r.t.Fatal("nothing is said")
		return nil
	}
}

func (r *rig) connect() {
	r.t.Helper()
	r.corr++
	r.Open(&effects.Open{Corr: r.corr, Channel: effects.ChannelLog,
		Addr: effects.Addr{Host: "127.0.0.1", Port: r.server.Port()}})
	e, ok := r.next().(*effects.Opened)
	if !ok || e.Corr != r.corr || e.Code != effects.OK {
		r.t.Fatalf("opened: %+v", e)
	}
	r.conn = e.Conn
}

// asks sends a request and returns its answer, or nil and the code of the failure.
func (r *rig) asks(q sharedlog.Request) (*sharedlog.Reply, effects.Code) {
	r.t.Helper()
	r.corr++
	r.Send(&effects.Send{Corr: r.corr, Conn: r.conn, Body: q.Append(nil)})
	switch e := r.next().(type) {
	case *effects.Replied:
		a := new(sharedlog.Reply)
		if e.Corr != r.corr || a.Decode(e.Body) != nil {
			r.t.Fatalf("replied: %+v", e)
		}
		return a, effects.OK
	case *effects.Unanswered:
		return nil, e.Code
	default:
		r.t.Fatalf("asked: %+v", e)
		return nil, 0
	}
}

func (r *rig) adds(entry string) sharedlog.Position {
	r.t.Helper()
	a, code := r.asks(sharedlog.Request{Entry: []byte(entry), Keep: 1000})
	if code != effects.OK {
		r.t.Fatalf("added: %v", code)
	}
	return a.Last
}

// reads returns the entries after a position, and the last position of the log.
func (r *rig) reads(after sharedlog.Position, most uint32) (all []string, last sharedlog.Position) {
	r.t.Helper()
	a, code := r.asks(sharedlog.Request{After: after, Limit: most})
	if code != effects.OK {
		r.t.Fatalf("read: %v", code)
	}
	for _, e := range a.Entries {
		all = append(all, string(e.Entry))
	}
	return all, a.Last
}

func TestEntriesAreReadInTheirOrder(t *testing.T) {
	r := newRig(t)
	first, bytes := r.adds("a"), "\x00\xff\r\nb"
	last := r.adds(bytes)
	if !first.Less(last) {
		t.Errorf("they stand at %v and %v", first, last)
	}
	if all, end := r.reads(sharedlog.Position{}, 10); !slices.Equal(all, []string{"a", bytes}) || end != last {
		t.Errorf("it has %q up to %v", all, end)
	}
	if all, end := r.reads(sharedlog.Position{}, 1); !slices.Equal(all, []string{"a"}) || end != last {
		t.Errorf("one at a time it has %q up to %v", all, end)
	}
	if all, end := r.reads(first, 10); !slices.Equal(all, []string{bytes}) || end != last {
		t.Errorf("behind the first it has %q up to %v", all, end)
	}
	if all, end := r.reads(last, 10); len(all) != 0 || end != last {
		t.Errorf("behind the last it has %q up to %v", all, end)
	}
}

// A frozen server delays no other request, and a request to it ends once. A server that was killed has lost its data,
// which shows in the last position of its log.
func TestServerThatSleepsOrDies(t *testing.T) {
	r := newRig(t)
	last := r.adds("a")
	r.server.Suspend()
	r.corr++
	r.Send(&effects.Send{Corr: r.corr, Conn: r.conn, Body: (&sharedlog.Request{After: last, Limit: 1}).Append(nil)})
	r.Close(r.conn)
	if e, ok := r.next().(*effects.Unanswered); !ok || e.Corr != r.corr || e.Code != effects.Closed {
		t.Errorf("closed: %+v", e)
	}
	r.server.Resume()
	r.connect()
	if all, _ := r.reads(sharedlog.Position{}, 10); !slices.Equal(all, []string{"a"}) {
		t.Errorf("after it slept it has %q", all)
	}

	r.server.Kill()
	if _, code := r.asks(sharedlog.Request{After: last, Limit: 1}); code != effects.PeerLost {
		t.Errorf("a dead server: %v", code)
	}
	r.server.Restart()
	for end := time.Now().Add(patience); ; {
		r.Close(r.conn)
		r.connect()
		a, code := r.asks(sharedlog.Request{After: last, Limit: 1})
		if code == effects.OK {
			if a.Last != (sharedlog.Position{}) || len(a.Entries) != 0 {
				t.Errorf("a server that began anew has %+v", a)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the server is there again: %v", code)
		}
	}
}

// A malformed request is refused, and so is one that the server cannot carry out. Other channels belong to the other
// transport.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	r.corr++
	r.Send(&effects.Send{Corr: r.corr, Conn: r.conn, Body: []byte("nonsense")})
	if e, ok := r.next().(*effects.Unanswered); !ok || e.Code != effects.Refused {
		t.Errorf("nonsense: %+v", e)
	}
	r.Close(r.conn)
	r.Send(&effects.Send{Corr: 99, Conn: r.conn})
	if e, ok := r.next().(*effects.Unanswered); !ok || e.Corr != 99 || e.Code != effects.Closed {
		t.Errorf("on a closed connection: %+v", e)
	}
	r.Open(&effects.Open{Channel: effects.ChannelDirectory})
	r.Send(&effects.Send{Conn: 1})
	r.Transport.Post(&effects.Post{Conn: 1})
	r.Close(1)
	if !slices.Equal(r.other.given, []string{"open", "send", "post", "close"}) {
		t.Errorf("the other transport was given %q", r.other.given)
	}
}
