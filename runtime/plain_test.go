//go:build cgo

package runtime_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
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

// plainReply is the answer that such a sender expects: one page of one buffer, in LMCache-Ascend's form.
func plainReply(page byte, buffer string) []byte {
	m := "\x85" +
		fixstr("type") + fixstr("AscendAllocResponse") +
		fixstr("already_sent_indexes") + "\x90" +
		fixstr("remote_indexes") + "\x91" + string([]byte{page}) +
		fixstr("remote_buffer_uuids") + "\x91" + str8(buffer) +
		fixstr("alloc_failed") + "\xc2"
	return []byte(m)
}

func askPlainly(t *testing.T, addr effects.Addr, requests ...[]byte) (replies [][]byte) {
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
	for _, r := range requests {
		if _, err := req.SendBytes(r, 0); err != nil {
			t.Fatal(err)
		}
		reply, err := req.RecvBytes(0)
		if err != nil {
			t.Fatalf("no answer within %v: %v", time.Duration(limit), err)
		}
		replies = append(replies, reply)
	}
	return replies
}

// wantPlainReply checks a reply byte for byte. Which page and which buffer is the receiver's to choose,
// so those two are read at their places first.
func wantPlainReply(t *testing.T, reply []byte) (page byte, buffer string) {
	t.Helper()
	pageAt := bytes.Index(reply, []byte("remote_indexes\x91")) + len("remote_indexes\x91")
	bufferAt := bytes.Index(reply, []byte("remote_buffer_uuids\x91\xd9\x24")) + len("remote_buffer_uuids\x91\xd9\x24")
	if pageAt >= len(reply) || bufferAt+36 > len(reply) {
		t.Fatalf("not the answer of one page: %q", reply)
	}
	page, buffer = reply[pageAt], string(reply[bufferAt:bufferAt+36])
	if want := plainReply(page, buffer); !bytes.Equal(reply, want) {
		t.Fatalf("got  %q\nwant %q", reply, want)
	}
	if page >= 8 {
		t.Errorf("page %d of a pool of 8", page)
	}
	return page, buffer
}

func TestPlainSenderIsServedByteForByte(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			r := open(t, receiverConfig(t, channel, nil))
			defer mustClose(t, r)
			addr := effects.Addr{Host: "127.0.0.1", Port: peerOf(r).AllocPort}
			replies := askPlainly(t, addr,
				plainRequest("plain@1@0@a1@bfloat16"), plainRequest("plain@1@0@a2@bfloat16"))
			first, buffer := wantPlainReply(t, replies[0])
			second, sameBuffer := wantPlainReply(t, replies[1])
			if first == second || buffer != sameBuffer {
				t.Errorf("pages %d and %d of buffers %s and %s; want two pages of one buffer", first, second, buffer, sameBuffer)
			}
			t.Log("# nobody committed the bytes, so nobody reads them")
			if hits, err := r.Receiver().Contains(within(t), []string{"plain@1@0@a1@bfloat16"}); err != nil || hits != 0 {
				t.Errorf("contains: %d, %v", hits, err)
			}
		})
	}
}

// "Every request that arrives is answered": also what is no message, and what follows it.
func TestNonsenseIsAnswered(t *testing.T) {
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	addr := effects.Addr{Host: "127.0.0.1", Port: peerOf(r).AllocPort}
	replies := askPlainly(t, addr, []byte("nonsense"), []byte{}, []byte{0xdf, 0xff, 0xff, 0xff, 0xff}, plainRequest("plain@1@0@a1@bfloat16"))
	wantPlainReply(t, replies[3])
}

// A sender whose pages are pulled is asked for more time on its init port, and for nothing else. Whoever tries to shake hands
// there is told that he cannot.
func TestSenderRefusesHandshakes(t *testing.T) {
	cfg := pullSenderConfig(t, "shm", effects.Addr{})
	cfg.InitPorts = []uint16{0}
	s := open(t, cfg)
	defer mustClose(t, s)
	replies := askPlainly(t, effects.Addr{Host: "127.0.0.1", Port: peerOf(s).InitPort}, plainHello(), []byte("nonsense"))
	for _, reply := range replies {
		if !bytes.Equal(reply, plainRefusal()) {
			t.Errorf("it is answered %q, want %q", reply, plainRefusal())
		}
	}
}
