//go:build cgo

package runtime_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// bin8 is one more form of msgpack.
func bin8(b []byte) string { return string([]byte{0xc4, byte(len(b))}) + string(b) }

func uuidText(id effects.Incarnation) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// handmadeHello is a plain handshake with those of our fields that a pushing peer cannot do without.
func handmadeHello(me effects.Incarnation, name string) []byte {
	return []byte("\x8a" + fixstr("type") + fixstr("HixlInitRequest") +
		fixstr("local_id") + fixstr("handmade:1") + fixstr("engine_id") + fixstr("handmade") +
		fixstr("kvf_proto") + "\x92\x03\x03" +
		fixstr("kvf_inc") + str8(uuidText(me)) +
		fixstr("kvf_page_bytes") + "\xcd\x40\x00" + // 16384
		fixstr("kvf_fmt") + "\x01" +
		fixstr("kvf_shape") + "\x94\x02\x02\x10\xcc\x80" +
		fixstr("kvf_dtype") + fixstr("bfloat16") +
		fixstr("kvf_planes") + "\x91" + fixstr(name))
}

// handmadeRequest asks for a page for one full chunk, as me, of the receiver that told me to call it to.
func handmadeRequest(me, to effects.Incarnation, key string) []byte {
	return []byte("\x8b" +
		fixstr("type") + fixstr("AllocRequest") +
		fixstr("keys") + "\x91" + str8(key) +
		fixstr("fmt") + "\x01" +
		fixstr("shape") + "\x94\x02\x02\x10\xcc\x80" +
		fixstr("dtype") + fixstr("bfloat16") +
		fixstr("last_chunk_toks") + "\x10" +
		fixstr("kvf_v") + "\x02" +
		fixstr("kvf_inc") + str8(uuidText(me)) +
		fixstr("kvf_to") + str8(uuidText(to)) +
		fixstr("kvf_op") + "\x07" +
		fixstr("kvf_patience_ns") + "\xce\x3b\x9a\xca\x00") // a second
}

// valueAfter returns what stands behind a field's name in a message.
func valueAfter(t *testing.T, message []byte, field string) []byte {
	t.Helper()
	_, rest, ok := bytes.Cut(message, []byte(fixstr(field)))
	if !ok {
		t.Fatalf("no %s in %q", field, message)
	}
	return rest
}

// nameIn is what the speaker of a message calls itself to its hearer alone.
func nameIn(t *testing.T, message []byte) effects.Incarnation {
	t.Helper()
	return effects.Incarnation(bufferOf(t, readString(t, valueAfter(t, message, "kvf_inc"))))
}

// blobIn is what a message says of its speaker's only plane.
func blobIn(t *testing.T, message []byte) []byte {
	t.Helper()
	blobs := valueAfter(t, message, "kvf_blobs")
	if blobs[0] != 0x91 || blobs[1] != 0xc4 {
		t.Fatalf("the planes' blobs are %q", blobs)
	}
	return blobs[3 : 3+int(blobs[2])]
}

// readUint reads an unsigned integer in whichever form it has.
func readUint(t *testing.T, b []byte) uint64 {
	t.Helper()
	switch {
	case b[0] < 0x80:
		return uint64(b[0])
	case b[0] == 0xcc:
		return uint64(b[1])
	case b[0] == 0xcd:
		return uint64(binary.BigEndian.Uint16(b[1:]))
	case b[0] == 0xce:
		return uint64(binary.BigEndian.Uint32(b[1:]))
	case b[0] == 0xcf:
		return binary.BigEndian.Uint64(b[1:])
	}
	t.Fatalf("0x%02x begins no unsigned integer", b[0])
	return 0
}

// A sender of which not one control byte comes from our codecs or sockets pushes a chunk: a plain REQ
// socket shakes hands and gets a grant, the plane moves the bytes under it, and the engine reads them.
func TestHandmadeSenderPushes(t *testing.T) {
	openers := map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open}
	for _, name := range []string{shm.Name, tcp.Name} {
		t.Run(name, func(t *testing.T) {
			node, env, blob := openSeen(t, receiverConfig(t, name, nil), name, openers[name])
			defer mustClose(t, node)
			peer := peerOf(node)
			writer := planetest.OpenNode(t, openers[name], 7, 1, pageBytes)

			t.Log("# the handshake tells who the receiver is, and its plane's blob")
			hello := askPlainly(t, effects.Addr{Host: peer.Host, Port: peer.InitPort}, handmadeHello(writer.Inc, name))[0]
			to, invitation := nameIn(t, hello), blobIn(t, hello)
			if !identity.SameIncarnation(to, env.Incarnation) || to == env.Incarnation || !bytes.HasPrefix(invitation, blob) {
				t.Fatalf("handshake: %q names no life of %x, or has not its blob", hello, env.Incarnation)
			}
			linked := writer.ImportAs(t, writer.Inc, to, invitation)
			if linked.Code != effects.OK {
				t.Fatalf("the import ended as %s", linked.Code)
			}

			t.Log("# the allocation gives one page, and the grant to write it")
			key := "handmade@1@0@a1@bfloat16"
			reply := askPlainly(t, effects.Addr{Host: peer.Host, Port: peer.AllocPort}, handmadeRequest(writer.Inc, to, key))[0]
			index := readUint(t, valueAfter(t, reply, "remote_indexes")[1:])
			grant := readUint(t, valueAfter(t, reply, "kvf_grant"))
			generation := readUint(t, valueAfter(t, reply, "kvf_gens")[1:])

			t.Log("# the bytes go there, and the push ends when they can be read")
			from := writer.PublishPages(0, 1, pageBytes)
			sent := writer.Pool.Bytes(from[0])
			for i := range sent {
				sent[i] = byte(i*7 + i>>8)
			}
			done := writer.AwaitDone(t, writer.StartPush(planetest.Push{To: to, Link: linked.Link, Grant: effects.GrantID(grant),
				From:   from,
				Into:   []effects.Page{{Index: uint32(index), Generation: effects.Generation(generation)}},
				Buffer: env.Pool.Buffer().ID}))
			if done.Code != effects.OK {
				t.Fatalf("the push ended as %s", done.Code)
			}

			got, err := node.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: []string{key}})
			if err != nil || got.Len() != 1 {
				t.Fatalf("get: %v, %v; want one chunk", got, err)
			}
			defer func() {
				if err := got.Release(within(t)); err != nil {
					t.Error(err)
				}
			}()
			if read, err := got.Bytes(0); err != nil || !bytes.Equal(read, sent) {
				t.Errorf("the chunk differs from what was sent (%v)", err)
			}
		})
	}
}
