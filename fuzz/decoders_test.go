package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

func FuzzAllocRequest(f *testing.F) { fuzzDecoder(f, protocol.TagAllocRequest) }
func FuzzAllocResponse(f *testing.F) {
	fuzzDecoder(f, protocol.TagAscendAllocResponse, protocol.TagAllocResponse)
}
func FuzzProxyNotif(f *testing.F)          { fuzzDecoder(f, protocol.TagProxyNotif) }
func FuzzHixlInitRequest(f *testing.F)     { fuzzDecoder(f, protocol.TagHixlInitRequest) }
func FuzzHixlInitResponse(f *testing.F)    { fuzzDecoder(f, protocol.TagHixlInitResponse) }
func FuzzHixlReadyRequest(f *testing.F)    { fuzzDecoder(f, protocol.TagHixlReadyRequest) }
func FuzzHixlReadyResponse(f *testing.F)   { fuzzDecoder(f, protocol.TagHixlReadyResponse) }
func FuzzHixlMemInfoRequest(f *testing.F)  { fuzzDecoder(f, protocol.TagHixlMemInfoRequest) }
func FuzzHixlMemInfoResponse(f *testing.F) { fuzzDecoder(f, protocol.TagHixlMemInfoResponse) }
func FuzzPullReadyNotif(f *testing.F)      { fuzzDecoder(f, protocol.TagPullReadyNotif) }
func FuzzPullReadyDoneAck(f *testing.F)    { fuzzDecoder(f, protocol.TagPullReadyDoneAck) }
func FuzzPullDoneSignal(f *testing.F)      { fuzzDecoder(f, protocol.TagPullDoneSignal) }
func FuzzRenewRequest(f *testing.F)        { fuzzDecoder(f, protocol.TagRenewRequest) }
func FuzzRenewResponse(f *testing.F)       { fuzzDecoder(f, protocol.TagRenewResponse) }

// fuzzDecoder fuzzes the decoder of the messages with the given tags, which is one.
func fuzzDecoder(f *testing.F, tags ...protocol.Tag) {
	used := protocol.NewMessage(tags[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		m := protocol.NewMessage(tags[0])
		err := m.Decode(b, nil)
		reused := used.Decode(b, nil)
		if (err == nil) != (reused == nil) {
			t.Fatalf("a fresh receiver gives %v, a used one %v", err, reused)
		}
		if err != nil {
			wantDecodeError(t, b, err)
			return
		}
		if text(used) != text(m) {
			t.Fatalf("a fresh receiver holds %s, a used one %s", text(m), text(used))
		}
		if tag, err := protocol.PeekTag(b, nil); err != nil || tag != tags[0] && tag != tags[len(tags)-1] {
			t.Fatalf("PeekTag: %v, %v", tag, err)
		}
		encoded := m.Append(nil)
		again := protocol.NewMessage(tags[0])
		if err := again.Decode(encoded, nil); err != nil {
			t.Fatalf("%s encodes as %x: %v", text(m), encoded, err)
		}
		if text(again) != text(m) {
			t.Fatalf("%s encodes as %s", text(m), text(again))
		}
		if twice := again.Append(nil); !bytes.Equal(twice, encoded) {
			t.Fatalf("encodes as %x, then as %x", encoded, twice)
		}
	})
}

// FuzzPeekTag holds the scan against the decoders: what one of them accepts, the scan accepts, as
// that message; and Describe agrees with both.
func FuzzPeekTag(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		tag, err := protocol.PeekTag(b, nil)
		described, describeErr := protocol.Describe(b, nil)
		if len(described) > 64*len(b)+256 {
			t.Fatalf("%d bytes of text for %d", len(described), len(b))
		}
		if err != nil {
			wantDecodeError(t, b, err)
			if describeErr == nil {
				t.Fatalf("described, but refused by PeekTag: %v", err)
			}
		}
		for want := protocol.TagAllocRequest; protocol.NewMessage(want) != nil; want++ {
			m := protocol.NewMessage(want)
			decodeErr := m.Decode(b, nil)
			switch {
			case decodeErr == nil && err != nil:
				t.Fatalf("%T accepted, but refused by PeekTag: %v", m, err)
			case tag == want && (decodeErr == nil) != (describeErr == nil):
				t.Fatalf("Decode says %v, Describe %v", decodeErr, describeErr)
			}
		}
	})
}

// FuzzMemory holds every decoder against its bound. A list of empty keys sets it: a byte each on
// the wire, a slice header in memory.
func FuzzMemory(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		const multiple, fixed = 64, 64 << 10 // The fuzzer's own goroutines allocate as well.
		for tag := protocol.TagAllocRequest; protocol.NewMessage(tag) != nil; tag++ {
			m := protocol.NewMessage(tag)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_ = m.Decode(b, nil)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > multiple*uint64(len(b))+fixed {
				t.Fatalf("%T allocates %d bytes for %d", m, got, len(b))
			}
		}
	})
}

func wantDecodeError(t *testing.T, b []byte, err error) {
	t.Helper()
	var refused *protocol.DecodeError
	if !errors.As(err, &refused) || refused.Offset < 0 || refused.Offset > len(b) || refused.Code == 0 {
		t.Fatalf("got %#v", err)
	}
	if n := len(err.Error()); n > 1024 {
		t.Fatalf("an error of %d bytes: %v", n, err)
	}
}

// text renders every field; nil and empty lists mean the same.
func text(m protocol.Message) string { return fmt.Sprintf("%T%+v", m, m) }
