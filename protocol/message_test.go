package protocol

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage.Draw(t, "message")
		payload := m.Append(nil)
		tag, err := PeekTag(payload, nil)
		if err != nil {
			t.Fatalf("PeekTag: %v", err)
		}
		got := NewMessage(tag)
		if err := got.Decode(payload, nil); err != nil {
			t.Fatalf("Decode: %v", err)
		}
		if text(got) != text(m) {
			t.Fatalf("got %s, want %s", text(got), text(m))
		}
		if again := got.Append(nil); !bytes.Equal(again, payload) {
			t.Fatalf("encodes as %x, then as %x", payload, again)
		}
		if _, err := Describe(payload, nil); err != nil {
			t.Fatalf("Describe: %v", err)
		}
	})
}

// A receiver that is used again holds nothing of the message before, not after an error either.
func TestDecodeLeavesNothingBehind(t *testing.T) {
	var receivers [tags]Message
	for tag := TagNone + 1; tag < tags; tag++ {
		receivers[tag] = NewMessage(tag)
	}
	receivers[TagAscendAllocResponse] = receivers[TagAllocResponse] // whichever form comes
	for tag := TagClearWorkerMsg; tag < TagAttachRequest; tag++ {
		receivers[tag] = receivers[TagClearWorkerMsg]
	}
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage.Draw(t, "message")
		payload := m.Append(nil)
		reused := receivers[tagOf(m)]
		cut := rapid.IntRange(0, len(payload)-1).Draw(t, "cut")
		if err := reused.Decode(payload[:cut], nil); err == nil {
			t.Fatalf("%d of %d bytes are accepted", cut, len(payload))
		}
		if err := reused.Decode(payload, nil); err != nil {
			t.Fatal(err)
		}
		if text(reused) != text(m) {
			t.Fatalf("got %s, want %s", text(reused), text(m))
		}
	})
}

// Extension fields without the one that announces them are read, for their types, and dropped.
func TestExtensionNeedsItsAnnouncement(t *testing.T) {
	for name, first := range map[string]string{
		"alloc-request-ext": "kvf_v", "alloc-response-ascend-ext": "kvf_v", "alloc-response-sync-ext": "kvf_v",
		"pull-ready-notif-ext": "kvf_v", "pull-ready-done-ack-delayed": "kvf_v", "pull-done-signal-missing": "kvf_v",
		"p2p-get-push-ext": "kvf_v", "p2p-get-ret-ext": "kvf_v", "p2p-done-ext": "kvf_v",
		"hixl-init-response-clock": "kvf_proto", "hixl-init-request-ext": "kvf_proto", "hixl-init-response-ext": "kvf_proto",
	} {
		m := golden[name]
		es := entries(t, m.Append(nil))
		unannounced := slices.DeleteFunc(slices.Clone(es), func(e entry) bool { return e.name == first })
		plain := slices.DeleteFunc(slices.Clone(es), func(e entry) bool { return strings.HasPrefix(e.name, "kvf_") })
		if len(unannounced) != len(es)-1 || len(plain) >= len(unannounced) {
			t.Fatalf("%s: no extension to take away", name)
		}
		got, err := decode(m, join(unannounced, false))
		want, plainErr := decode(m, join(plain, false))
		if err != nil || plainErr != nil || text(got) != text(want) {
			t.Errorf("%s: got %s, %v, want %s, %v", name, text(got), err, text(want), plainErr)
		}
	}
}

// Mutated messages are accepted or refused, but nothing else, and what is accepted is stable: what
// we understood, we would send, and understand again.
func TestMutatedBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := genMessage.Draw(t, "message").Append(nil)
		for range rapid.IntRange(1, 4).Draw(t, "mutations") {
			at := rapid.IntRange(0, len(payload)-1).Draw(t, "at")
			payload[at] = rapid.Byte().Draw(t, "byte")
		}
		for tag := TagNone + 1; tag < tags; tag++ {
			m := NewMessage(tag)
			err := m.Decode(payload, nil)
			if err != nil {
				var refused *DecodeError
				if !errors.As(err, &refused) || refused.Offset < 0 || refused.Offset > len(payload) {
					t.Fatalf("%T: %v", m, err)
				}
				continue
			}
			again := NewMessage(tag)
			if err := again.Decode(m.Append(nil), nil); err != nil || text(again) != text(m) {
				t.Fatalf("%s then %s, %v", text(m), text(again), err)
			}
		}
	})
}

// "No allocation beyond a small multiple of the input on any bytes." The multiple is set by a list
// of empty keys: one byte each on the wire, a slice header of 24 in memory, twice that under -race.
func TestHostileBytesAllocateLittle(t *testing.T) {
	const multiple, fixed = 64, 8 << 10
	claims := [][]byte{
		unhex(t, "ddffffffff"), unhex(t, "dfffffffff"), unhex(t, "dbffffffff"), unhex(t, "c6ffffffff"),
		unhex(t, "c9ffffffff"),
		unhex(t, "dcffff"), listOf(4096, []byte{0xa0}), listOf(4096, []byte{0}), listOf(4096, []byte{0xc0}),
		listOf(256, []byte{0x80}),
		bytes.Repeat([]byte{0x91}, 1<<19), bytes.Repeat([]byte{0x81, 0xa0}, 1<<18),
		bytes.Repeat([]byte{0xdd, 0, 0, 0, 1}, 1<<16),
	}
	try := func(payload []byte, by ...Tag) {
		t.Helper()
		for _, tag := range by {
			m := NewMessage(tag)
			if got := allocated(func() { _ = m.Decode(payload, nil) }); got > multiple*uint64(len(payload))+fixed {
				t.Fatalf("%v allocates %d bytes for %d, which begin with %x", tag, got, len(payload),
					payload[:min(64, len(payload))])
			}
		}
		if got := allocated(func() { _, _ = PeekTag(payload, nil) }); got > fixed {
			t.Fatalf("PeekTag allocates %d bytes for %d", got, len(payload))
		}
	}
	every := []Tag{}
	for tag := TagNone + 1; tag < tags; tag++ {
		every = append(every, tag)
	}
	for _, claim := range claims {
		try(claim, every...)
		try(extended(claim), every...)
		for name, m := range golden {
			for _, e := range entries(t, m.Append(nil)) {
				try(withField(t, name, e.name, claim), tagOf(m)) // Every other decoder reads no more than the tag.
			}
		}
	}
}

// allocated returns the bytes that f allocates. Other goroutines may add theirs, never take away.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHotPathAllocatesNothing(t *testing.T) {
	b := make([]byte, 0, 64<<10)
	for _, m := range []Message{
		golden["alloc-request-async-ext"], golden["alloc-response-ascend-ext"], golden["alloc-response-sync"],
		golden["proxy-notif-ext"], batch64(),
		golden["pull-ready-notif-ext"], golden["pull-ready-notif-withdraw"], golden["pull-ready-done-ack-delayed"],
		golden["pull-done-signal-missing"],
		golden["renew-request"], golden["renew-response"], offer64(),
		golden["p2p-get-push-ext"], golden["p2p-get-ret-ext"], golden["p2p-done-ext"], golden["p2p-lookup"],
		golden["p2p-lookup-ret-two"], golden["kv-batch-ext"], golden["sync-batch-ext"], golden["heartbeat"],
		golden["agent-call-put"], golden["agent-call-register"], golden["agent-answer-pages"], golden["agent-show"],
		golden["agent-shown"], golden["agent-returned"],
	} {
		payload := m.Append(nil)
		got := NewMessage(tagOf(m))
		for what, f := range map[string]func(){
			"Append":  func() { b = m.Append(b[:0]) },
			"Decode":  func() { mustNot(t, got.Decode(payload, nil)) },
			"PeekTag": func() { _, err := PeekTag(payload, nil); mustNot(t, err) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%T.%s: %v allocations", m, what, n)
			}
		}
	}
	id := []byte(pullID1.String())
	if n := testing.AllocsPerRun(100, func() { _, _ = ParsePullID(id) }); n != 0 {
		t.Errorf("ParsePullID: %v allocations", n)
	}
	key := goldenKeys[1]
	if n := testing.AllocsPerRun(100, func() { mustNot(t, CheckKey(key, 512)) }); n != 0 {
		t.Errorf("CheckKey: %v allocations", n)
	}
}

func mustNot(t *testing.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
