package valkey_test

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/valkey"
)

// A server whose replies exceed all bounds, or that is no Valkey server, costs one error and nothing else.
func TestRepliesWithoutBounds(t *testing.T) {
	for _, says := range []string{"*999999999999999\r\n", "$999999999999999\r\n", "*99999999999999999999\r\n",
		strings.Repeat("*1\r\n", 1<<20)} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan struct{})
		go func() {
			defer close(told)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "+OK\r\n"+says) // The first is for the client's name.
			_, _ = io.Copy(io.Discard, c)
		}()
		r := &rig{t: t, other: &other{}, said: make(chan effects.Event, 64)}
		open := func(control.Env) (control.Transport, error) { return r.other, nil }
		r.Transport, err = valkey.WithLog(open, valkey.Config{Stream: "log"})(control.Env{
			Sink: r, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Open(&effects.Open{Corr: 1, Channel: effects.ChannelLog,
			Addr: effects.Addr{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}})
		q := sharedlog.Request{Limit: 1}
		r.Send(&effects.Send{Corr: 2, Conn: r.next().(*effects.Opened).Conn, Body: q.Append(nil)})
		if e, ok := r.next().(*effects.Unanswered); !ok || e.Code != effects.PeerLost {
			t.Errorf("%.20q: got %+v", says, e)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		_ = l.Close()
		<-told
	}
}
