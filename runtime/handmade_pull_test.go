//go:build cgo

package runtime_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// Senders of which not one control byte comes from our codecs or sockets offer chunks to our receiver.

// msgmap is a map of names and values that are msgpack already.
func msgmap(pairs ...string) []byte {
	n := len(pairs) / 2
	m := string([]byte{0x80 | byte(n)})
	if n > 15 {
		m = string([]byte{0xde, 0, byte(n)})
	}
	for i, part := range pairs {
		if i%2 == 0 {
			part = fixstr(part)
		}
		m += part
	}
	return []byte(m)
}

// uint64Of is an integer in its longest form.
func uint64Of(n uint64) string { return string(binary.BigEndian.AppendUint64([]byte{0xcf}, n)) }

// arrayOf is an array of fewer than 16 values.
func arrayOf(values ...string) string {
	return string([]byte{0x90 | byte(len(values))}) + strings.Join(values, "")
}

const (
	handmadeShape = "\x94\x02\x02\x10\xcc\x80" // [2, 2, 16, 128]
	handmadePull  = "0123456789abcdef0123456789abcdef"
)

// A notice is an offer as LMCache-Ascend's sender writes it, of two full chunks.
type notice struct {
	keys    []string
	buffer  string
	indexes [2]byte
	done    string
}

func (n *notice) fields() []string {
	return []string{
		"type", fixstr("PullReadyNotif"),
		"pull_id", str8(handmadePull),
		"keys", arrayOf(str8(n.keys[0]), str8(n.keys[1])),
		"sender_buffer_uuids", arrayOf(str8(n.buffer), str8(n.buffer)),
		"sender_mem_indexes", arrayOf(string(n.indexes[:1]), string(n.indexes[1:])),
		"sender_id", str8(n.done),
		"sender_done_url", str8(n.done),
		"fmt", "\x01",
		"shape", handmadeShape,
		"dtype", fixstr("bfloat16"),
		"last_chunk_toks", "\x10",
	}
}

// plainPull binds the socket on which a plain sender is told what was read.
func plainPull(t *testing.T) (s *zmq4.Socket, url string) {
	t.Helper()
	s = plainSocket(t, zmq4.PULL)
	return s, bindPlainly(t, s)
}

// plainSocket is a socket of plain ZeroMQ that waits as long as a test may.
func plainSocket(t *testing.T, kind zmq4.Type) *zmq4.Socket {
	t.Helper()
	zctx, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	s, err := zctx.NewSocket(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Close(), zctx.Term() })
	for _, err := range []error{s.SetLinger(0), s.SetRcvtimeo(limit), s.SetSndtimeo(limit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// bindPlainly binds a socket where the system likes and returns host:port.
func bindPlainly(t *testing.T, s *zmq4.Socket) string {
	t.Helper()
	if err := s.Bind("tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	at, err := s.GetLastEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(at, "tcp://")
}

// Nothing fences a plain sender's pages: what was read could be the next chunk's by then. So its offer is answered by
// the empty frame that makes its put raise, and whoever runs the receiver is told why.
func TestPlainOfferIsRefused(t *testing.T) {
	for name, opener := range map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			r, err := runtime.Open(t.Context(), receiverConfig(t, name, nil),
				runtime.WithLogger(slog.New(slog.NewTextHandler(&said, nil))),
				runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(name, opener))
			if err != nil {
				t.Fatal(err)
			}
			peer := peerOf(r)
			n := notice{keys: keysOf("plain", 2), buffer: "6f1c2d3e-4a5b-6c7d-8e9f-001122334455", indexes: [2]byte{0, 1},
				done: "127.0.0.1:7600"}
			offer := msgmap(n.fields()...)
			acks := askPlainly(t, effects.Addr{Host: "127.0.0.1", Port: peer.AllocPort}, offer, offer)
			for _, ack := range acks {
				if len(ack) != 0 {
					t.Errorf("it is answered %q, want an empty frame", ack)
				}
			}
			if hits, err := r.Receiver().Contains(within(t), n.keys); err != nil || hits != 0 {
				t.Errorf("contains: %d, %v", hits, err)
			}
			wantNothingHeld(t, r)
			mustClose(t, r)
			if log := said.String(); strings.Count(log, `remedy="run kvferry at both ends`) != 1 {
				t.Errorf("the log does not say once why, and what helps:\n%s", log)
			}
		})
	}
}

// With the few fields that fence its pages added by hand, the same sender's chunks are read.
func TestHandmadeSenderIsPulledFrom(t *testing.T) {
	for name, opener := range map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open} {
		t.Run(name, func(t *testing.T) {
			node, _, _ := openSeen(t, receiverConfig(t, name, nil), name, opener)
			defer mustClose(t, node)
			peer := peerOf(node)
			owner := planetest.OpenNode(t, opener, 7, 2, pageBytes)
			buffer := uuidText(effects.Incarnation(owner.Pool.Buffer().ID))

			t.Log("# the handshake tells where the pages are")
			var to effects.Incarnation
			talkPlainly(t, effects.Addr{Host: peer.Host, Port: peer.InitPort}, func(ask func([]byte) []byte) {
				to = nameIn(t, ask(handmadeHello(owner.Inc, name)))
				list := ask(msgmap("type", fixstr("HixlMemInfoRequest"), "local_id", fixstr("handmade:1"), "buffers",
					arrayOf(string(msgmap(
						"uuid", str8(buffer), "buffer_ptr", uint64Of(1<<47), "buffer_size", uint64Of(2*pageBytes), "page_size",
						uint64Of(pageBytes), "is_device", "\xc2"))),
					"kvf_clock_ns", "\x01", "kvf_planes", arrayOf(fixstr(name)),
					"kvf_blobs", arrayOf(bin8(planetest.NewInvitation(name, owner.Plane.Blob(), to, owner.Inc)))))
				if want := "HixlMemInfoResponse"; !bytes.Contains(list, []byte(want)) {
					t.Fatalf("handshake: %q is no %s", list, want)
				}
			})

			t.Log("# the pages are lent, and then offered")
			pages := owner.PublishPages(0, 2, pageBytes)
			owner.FillPages(pages)
			grant := owner.GrantRead(to, pages)
			done, url := plainPull(t)
			n := notice{keys: keysOf("handmade", 2), buffer: buffer, indexes: [2]byte{0, 1}, done: url}
			ack := askPlainly(t, effects.Addr{Host: peer.Host, Port: peer.AllocPort}, msgmap(append(n.fields(),
				"kvf_v", "\x02", "kvf_inc", str8(uuidText(owner.Inc)), "kvf_to", str8(uuidText(to)), "kvf_op", "\x07",
				"kvf_patience_ns", uint64Of(uint64(limit)), "kvf_grant", uint64Of(uint64(grant)),
				"kvf_gens", arrayOf(uint64Of(uint64(pages[0].Generation)), uint64Of(uint64(pages[1].Generation))),
				"kvf_lease_ns", uint64Of(uint64(limit)))...))[0]
			if !bytes.Contains(ack,
				[]byte(fixstr("PullReadyDoneAck")+fixstr("already_sent_indexes")+"\x90"+fixstr("alloc_failed")+"\xc2")) {
				t.Fatalf("the offer is answered %q", ack)
			}

			t.Log("# the word that they were read comes, and the chunks are there")
			word, err := done.RecvBytes(0)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(word, []byte(fixstr("PullDoneSignal")+fixstr("pull_id")+str8(handmadePull))) ||
				readUint(t, valueAfter(t, word, "kvf_grant")) != uint64(grant) {
				t.Errorf("it is told %q", word)
			}
			got, err := node.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: n.keys})
			if err != nil || got.Len() != 2 {
				t.Fatalf("get: %v, %v; want two chunks", got, err)
			}
			for i, page := range pages {
				if b, err := got.Bytes(i); err != nil || !bytes.Equal(b, owner.Pool.Bytes(page)) {
					t.Errorf("chunk %d differs from what was offered (%v)", i, err)
				}
			}
			owner.Pool.Revoke(grant)
			planetest.AwaitEvent(t, owner, func(e *effects.Revoked) bool { return e.Grant == grant })
			mustRelease(t, got)
		})
	}
}

// readUints reads an array of unsigned integers.
func readUints(t *testing.T, b []byte) (all []uint64) {
	t.Helper()
	n := int(b[0] & 0x0f)
	b = b[1:]
	for range n {
		all = append(all, readUint(t, b))
		switch b[0] {
		case 0xcc:
			b = b[2:]
		case 0xcd:
			b = b[3:]
		case 0xce:
			b = b[5:]
		case 0xcf:
			b = b[9:]
		default:
			b = b[1:]
		}
	}
	return all
}

// readString reads a string.
func readString(t *testing.T, b []byte) string {
	t.Helper()
	switch {
	case b[0]&0xe0 == 0xa0:
		return string(b[1 : 1+b[0]&0x1f])
	case b[0] == 0xd9:
		return string(b[2 : 2+int(b[1])])
	}
	t.Fatalf("0x%02x begins no short string", b[0])
	return ""
}

// bufferOf reads the text of a UUID.
func bufferOf(t *testing.T, uuid string) (id effects.BufferID) {
	t.Helper()
	if _, err := hex.Decode(id[:], []byte(strings.ReplaceAll(uuid, "-", ""))); err != nil {
		t.Fatalf("%s: %v", uuid, err)
	}
	return id
}

func addrOf(t *testing.T, url string) (a effects.Addr) {
	t.Helper()
	host, port, _ := strings.Cut(url, ":")
	a.Host = host
	if _, err := fmt.Sscan(port, &a.Port); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return a
}
