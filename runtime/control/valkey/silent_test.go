package valkey_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/valkey"
)

// lines receives log lines.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A server that accepts TLS connections and stays silent is logged with what to change, although the machine has given
// up its request by then.
func TestSilentServerIsToldOf(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	r, said := &rig{t: t, other: &other{}, said: make(chan effects.Event, 64)}, make(lines, 64)
	open := func(control.Env) (control.Transport, error) { return r.other, nil }
	r.Transport, err = valkey.WithLog(open, valkey.Config{
		Stream: "log", TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Dial: 100 * time.Millisecond,
	})(control.Env{Sink: r, Log: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r.Open(&effects.Open{Corr: 1, Channel: effects.ChannelLog,
		Addr: effects.Addr{Host: "127.0.0.1", Port: uint16(silent.Addr().(*net.TCPAddr).Port)}})
	conn := r.next().(*effects.Opened).Conn
	q := sharedlog.Request{Limit: 1}
	r.Send(&effects.Send{Corr: 2, Conn: conn, Body: q.Append(nil)})
	called, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = called.Close() }()
	r.Close(conn)
	if e, ok := r.next().(*effects.Unanswered); !ok || e.Code != effects.Closed {
		t.Errorf("got %+v", e)
	}
	select {
	case line := <-said:
		if !strings.Contains(line, "directory.log_tls") || !strings.Contains(line, silent.Addr().String()) {
			t.Errorf("%q does not say what to look at", line)
		}
	case <-time.After(patience):
		t.Error("nothing is said of the server")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
