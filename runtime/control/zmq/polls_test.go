package zmq

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
)

// Connections poll for as long as the configuration says, otherwise for as long as the caller of the opener says.
func TestConnectionsPoll(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, c := range []struct{ own, env, want time.Duration }{
		{0, 0, 0}, {0, time.Millisecond, time.Millisecond}, {time.Second, time.Millisecond, time.Second},
	} {
		opened, err := Config{Poll: c.own}.Opener()(control.Env{Sink: controltest.NewRecorder(), Poll: c.env})
		if err != nil {
			t.Fatal(err)
		}
		x := opened.(*transport)
		conn, err := x.connectAddr(t.Context(), netip.MustParseAddrPort(l.Addr().String()))
		if err != nil {
			t.Fatal(err)
		}
		if _, plain := conn.(*net.TCPConn); x.config.Poll != c.want || plain != (c.want == 0) {
			t.Errorf("%+v: polls for %v on a %T", c, x.config.Poll, conn)
		}
		_ = conn.Close()
		if err := opened.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
