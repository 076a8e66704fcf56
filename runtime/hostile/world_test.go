//go:build cgo && linux

package hostile_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

// A log that takes nothing, of a node that strangers keep busy with lines.
func TestLogThatBlocks(t *testing.T) {
	v := startVictim(t, setup{}, logtest.FullPipe(t))
	h := newHonest(t, v, "h")
	for range 300 {
		c, err := net.Dial("tcp4", v.initAddr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\n"))
		_ = c.Close()
	}
	h.puts(20, nil)
	if h.failed > 0 || h.wrong > 0 {
		t.Errorf("%d puts failed, %d bytes wrong: %s", h.failed, h.wrong, h.why)
	}
}

// A name server that says nothing, and then something else than before.
func TestNames(t *testing.T) {
	v := startVictim(t, setup{}, nil)
	var moved atomic.Bool
	n, err := setup{Role: "sender"}.open(zmq.Config{NameTimeout: 50 * time.Millisecond,
		Lookup: func(ctx context.Context, _, host string) ([]netip.Addr, error) {
			if host == "silent.example" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if moved.Load() {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.9")}, nil
		}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	h := &honest{t: t, to: v, n: n, name: "n"}
	h.puts(5, nil)
	put := func(host string) effects.Code {
		pages, err := n.Sender().Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pages.Release(context.Background()) }()
		at := v.peer
		at.Host = host
		_, err = n.Sender().Put(t.Context(), runtime.Put{Peer: at, Request: host, Keys: []string{host + "@1@0@1a@bfloat16"},
			Pages: pages})
		return runtime.CodeOf(err)
	}
	ended := make(chan effects.Code)
	go func() { ended <- put("silent.example") }()
	h.puts(5, nil)
	if code := <-ended; code != effects.Unreachable {
		t.Errorf("a name that nobody knows: %s", code)
	}
	if code := put("decode.example"); code != effects.Unreachable {
		t.Errorf("before it moved: %s", code)
	}
	moved.Store(true)
	if code := put("decode.example"); code != effects.OK {
		t.Errorf("after it moved: %s", code)
	}
	if h.failed > 0 || h.wrong > 0 {
		t.Errorf("%d puts failed, %d bytes wrong: %s", h.failed, h.wrong, h.why)
	}
}
