//go:build cgo && linux

package runtime_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// hcclSaysNo is how LMCache-Ascend's HCCL channel answers what it cannot read.
var hcclSaysNo = msgmap("type", fixstr("HcclErrorResponse"), "ok", "\xc2")

// otherKind is where a receiver of another kind listens, with a socket of plain ZeroMQ for its handshakes.
func otherKind(t *testing.T, socket *zmq4.Socket) runtime.Peer {
	t.Helper()
	p := runtime.Peer{Host: "127.0.0.1", InitPort: addrOf(t, bindPlainly(t, socket)).Port}
	p.AllocPort = addrOf(t, bindPlainly(t, plainSocket(t, zmq4.REP))).Port
	return p
}

// answerPlainly takes one question and answers it.
func answerPlainly(t *testing.T, socket *zmq4.Socket, answer []byte) {
	t.Helper()
	if _, err := socket.RecvBytes(0); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.SendBytes(answer, 0); err != nil {
		t.Fatal(err)
	}
}

// Who was found to be of another kind is left alone: it may serve nobody any more after a hello that it cannot read.
func TestWhoIsOfAnotherKindIsAskedOnce(t *testing.T) {
	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.Machine.BackoffMin, cfg.Machine.BackoffMax, cfg.Machine.UnfitBackoff = effects.Millisecond, effects.Millisecond, 3600*effects.Second
	s := open(t, cfg)
	defer mustClose(t, s)
	pages := mustReserve(t, s, 1)
	defer mustRelease(t, pages)
	socket := plainSocket(t, zmq4.REP)
	put := runtime.Put{Peer: otherKind(t, socket), Request: "r", Keys: keysOf("kinds", 1), Pages: pages}

	ended := make(chan error, 1)
	go func() {
		_, err := s.Sender().Put(within(t), put)
		ended <- err
	}()
	answerPlainly(t, socket, hcclSaysNo)
	wantCode(t, <-ended, effects.Unsupported)

	// Many of these take many times the pause after which others are asked again.
	put.Timeout = 200 * time.Millisecond
	for range 1000 {
		if _, err := s.Sender().Put(within(t), put); runtime.CodeOf(err) != effects.Unsupported {
			t.Errorf("a put ends as %v; want unsupported, at once", err)
			break
		}
	}
	if hello, err := socket.RecvBytes(zmq4.DONTWAIT); !errors.Is(err, zmq4.Errno(syscall.EAGAIN)) {
		t.Errorf("it was asked again, before link.unfit_backoff: %d bytes, %v", len(hello), err)
	}
}
