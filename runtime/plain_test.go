//go:build cgo

package runtime_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// Hand-made msgpack: this file uses none of our codecs, and none of our sockets, on the asking side.

func fixstr(s string) string { return string([]byte{0xa0 | byte(len(s))}) + s }

func str8(s string) string { return string([]byte{0xd9, byte(len(s))}) + s }

// plainRequest is what an unmodified LMCache sender writes for one full chunk: no extension fields.
func plainRequest(key string) []byte {
	m := "\x86" + // a map of six
		fixstr("type") + fixstr("AllocRequest") +
		fixstr("keys") + "\x91" + str8(key) +
		fixstr("fmt") + "\x01" + // KV_2LTD
		fixstr("shape") + "\x94\x02\x02\x10\xcc\x80" + // [2, 2, 16, 128]
		fixstr("dtype") + fixstr("bfloat16") +
		fixstr("last_chunk_toks") + "\x10"
	return []byte(m)
}

func askPlainly(t *testing.T, addr effects.Addr, requests ...[]byte) (replies [][]byte) {
	t.Helper()
	talkPlainly(t, addr, func(ask func([]byte) []byte) {
		for _, r := range requests {
			replies = append(replies, ask(r))
		}
	})
	return replies
}

// talkPlainly lets talk ask one request after another on one connection.
func talkPlainly(t *testing.T, addr effects.Addr, talk func(ask func(request []byte) (reply []byte))) {
	t.Helper()
	zctx, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	defer zctx.Term()
	req, err := zctx.NewSocket(zmq4.REQ)
	if err != nil {
		t.Fatal(err)
	}
	defer req.Close()
	for _, err := range []error{req.SetLinger(0), req.SetRcvtimeo(limit), req.SetSndtimeo(limit),
		req.Connect(fmt.Sprintf("tcp://%s:%d", addr.Host, addr.Port))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	talk(func(request []byte) []byte {
		t.Helper()
		if _, err := req.SendBytes(request, 0); err != nil {
			t.Fatal(err)
		}
		reply, err := req.RecvBytes(0)
		if err != nil {
			t.Fatalf("no answer within %v: %v", time.Duration(limit), err)
		}
		return reply
	})
}

// An unmodified sender asks for a whole pool that it can never write to. It is told so at once, by the empty frame that
// makes its put raise: after an allocation that failed it would tell its proxy that everything was sent. Nothing is
// held for it, whoever runs the receiver is told once why, and the next sender of ours is served.
func TestPlainSenderIsRefusedAtOnce(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			var said bytes.Buffer
			r := openSaying(t, receiverConfig(t, channel, nil), &said)
			peer := peerOf(r)
			for i, reply := range askPlainly(t, effects.Addr{Host: "127.0.0.1", Port: peer.AllocPort},
				plainRequest("plain@1@0@a1@bfloat16"), plainRequest("plain@1@0@a2@bfloat16")) {
				if len(reply) != 0 {
					t.Errorf("request %d is answered %q, want an empty frame", i, reply)
				}
			}
			wantNothingHeld(t, r)
			mustPutAndGet(t, channel, peer, r)
			mustClose(t, r)
			if log := said.String(); strings.Count(log, `remedy="run kvferry at both ends`) != 1 {
				t.Errorf("the log does not say once why, and what helps:\n%s", log)
			}
		})
	}
}

// openSaying opens a node that logs to said; read it when the node is closed.
func openSaying(t *testing.T, cfg *config.Config, said io.Writer) *runtime.Node {
	t.Helper()
	n, err := runtime.Open(t.Context(), cfg, runtime.WithLogger(slog.New(slog.NewTextHandler(said, nil))),
		runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open),
		runtime.WithPlane(tcp.Name, tcp.Open))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// mustPutAndGet fills the receiver's pool from a sender of ours.
func mustPutAndGet(t *testing.T, channel string, to runtime.Peer, r *runtime.Node) {
	t.Helper()
	s := open(t, senderConfig(t, channel, effects.Addr{}))
	defer mustClose(t, s)
	keys, pages := keysOf("ours", 8), mustReserve(t, s, 8)
	defer mustRelease(t, pages)
	fill(t, pages, keys)
	if _, err := s.Sender().Put(within(t), runtime.Put{Peer: to, Keys: keys, Pages: pages}); err != nil {
		t.Fatal(err)
	}
	got, err := r.Receiver().Get(within(t), runtime.Get{Keys: keys})
	if err != nil || got.Len() != len(keys) {
		t.Fatalf("get: %d of %d, %v", got.Len(), len(keys), err)
	}
	mustRelease(t, got)
}

// "Every request that arrives is answered": also what is no message, and what follows it.
func TestNonsenseIsAnswered(t *testing.T) {
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	addr := effects.Addr{Host: "127.0.0.1", Port: peerOf(r).AllocPort}
	replies := askPlainly(t, addr, []byte("nonsense"), []byte{}, []byte{0xdf, 0xff, 0xff, 0xff, 0xff},
		plainRequest("plain@1@0@a1@bfloat16"))
	for i, reply := range replies {
		if len(reply) != 0 {
			t.Errorf("message %d is answered %q, want an empty frame", i, reply)
		}
	}
}

// A sender whose pages are pulled is asked for more time on its init port, and for nothing else. Whoever tries to shake
// hands there is told that he cannot.
func TestSenderRefusesHandshakes(t *testing.T) {
	cfg := pullSenderConfig(t, "shm", effects.Addr{})
	cfg.InitPorts = []uint16{0}
	s := open(t, cfg)
	defer mustClose(t, s)
	replies := askPlainly(t, effects.Addr{Host: "127.0.0.1", Port: peerOf(s).InitPort}, plainHello(), []byte("nonsense"))
	for _, reply := range replies {
		if !refusesPlainly(reply) {
			t.Errorf("it is answered %q, want no", reply)
		}
	}
}
