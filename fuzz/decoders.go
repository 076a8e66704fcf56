package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/foreign"
)

// The targets of the decoders, one for each message. An accepted message has the same meaning after it was encoded
// again, by us or by another encoder, and msgpack/v5 reads the same fields from it. The error for a refused message
// points into the bytes.
var (
	AllocRequest        = decoderTarget("AllocRequest", protocol.TagAllocRequest)
	AllocResponse       = decoderTarget("AllocResponse", protocol.TagAscendAllocResponse, protocol.TagAllocResponse)
	ProxyNotif          = decoderTarget("ProxyNotif", protocol.TagProxyNotif)
	HixlInitRequest     = decoderTarget("HixlInitRequest", protocol.TagHixlInitRequest)
	HixlInitResponse    = decoderTarget("HixlInitResponse", protocol.TagHixlInitResponse)
	HixlReadyRequest    = decoderTarget("HixlReadyRequest", protocol.TagHixlReadyRequest)
	HixlReadyResponse   = decoderTarget("HixlReadyResponse", protocol.TagHixlReadyResponse)
	HixlMemInfoRequest  = decoderTarget("HixlMemInfoRequest", protocol.TagHixlMemInfoRequest)
	HixlMemInfoResponse = decoderTarget("HixlMemInfoResponse", protocol.TagHixlMemInfoResponse)
	PullReadyNotif      = decoderTarget("PullReadyNotif", protocol.TagPullReadyNotif)
	PullReadyDoneAck    = decoderTarget("PullReadyDoneAck", protocol.TagPullReadyDoneAck)
	PullDoneSignal      = decoderTarget("PullDoneSignal", protocol.TagPullDoneSignal)
	RenewRequest        = decoderTarget("RenewRequest", protocol.TagRenewRequest)
	RenewResponse       = decoderTarget("RenewResponse", protocol.TagRenewResponse)
	EndRequest          = decoderTarget("EndRequest", protocol.TagEndRequest)
	EndResponse         = decoderTarget("EndResponse", protocol.TagEndResponse)
	CacheQueryRequest   = decoderTarget("CacheQueryRequest", protocol.TagCacheQueryRequest)
	CacheQueryResponse  = decoderTarget("CacheQueryResponse", protocol.TagCacheQueryResponse)
)

// PeekTag compares the scan for a message's tag with the decoders: the scan accepts every message that a decoder
// accepts, and returns its tag; protocol.Describe agrees with both.
var PeekTag = statelessTarget("PeekTag", checkPeekTag, peekTagSeeds)

// Memory checks the memory of every decoder: a decoder allocates at most a small multiple of the input. The target
// counts the allocations of the whole process, so nothing else may run at the same time.
var Memory = statelessTarget("Memory", checkMemory, memorySeeds)

// decoderTarget returns the target of the decoder that reads the messages with the given tags.
func decoderTarget(name string, tags ...protocol.Tag) Target {
	return registerTarget(Target{name: name, tags: tags, begin: func() Check {
		used := protocol.NewMessage(tags[0])
		return func(b []byte) error { return checkDecoder(b, used, tags) }
	}})
}

func checkDecoder(b []byte, used protocol.Message, tags []protocol.Tag) error {
	m := protocol.NewMessage(tags[0])
	err := m.Decode(b, nil)
	reused := used.Decode(b, nil)
	if (err == nil) != (reused == nil) {
		return fmt.Errorf("a fresh receiver gives %v, a used one %v", err, reused)
	}
	if err != nil {
		return checkDecodeError(b, err)
	}
	if textOf(used) != textOf(m) {
		return fmt.Errorf("a fresh receiver holds %s, a used one %s", textOf(m), textOf(used))
	}
	tag, err := peekTag(b)
	if err != nil || !slices.Contains(tags, tag) {
		return fmt.Errorf("PeekTag: %v, %v", tag, err)
	}
	encoded := m.Append(nil)
	decoded := protocol.NewMessage(tags[0])
	if err := decoded.Decode(encoded, nil); err != nil {
		return fmt.Errorf("%s encodes as %x: %w", textOf(m), encoded, err)
	}
	if textOf(decoded) != textOf(m) {
		return fmt.Errorf("%s encodes as %s", textOf(m), textOf(decoded))
	}
	if twice := decoded.Append(nil); !bytes.Equal(twice, encoded) {
		return fmt.Errorf("encodes as %x, then as %x", encoded, twice)
	}
	if isJSON(b) {
		b = encoded
	}
	if err := compareWithLibrary(b, tag, m); err != nil {
		return err
	}
	return checkForeign(b, m, decoded)
}

// isJSON reports whether the input is meant as JSON, which the decoders of a controller's messages read.
func isJSON(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// peekTag returns the tag of the input, by the scan that fits the input.
func peekTag(b []byte) (protocol.Tag, error) {
	if isJSON(b) {
		return protocol.PeekControllerTag(b, nil)
	}
	return protocol.PeekTag(b, nil)
}

// checkForeign encodes an accepted message as another encoder may, in forms that are drawn from a hash of the message,
// and checks that it is decoded to the same values. Unknown fields are not added, because the message may have reached
// the limit on fields already.
func checkForeign(b []byte, m, into protocol.Message) error {
	sum := fnv.New64a()
	_, _ = sum.Write(b) // It returns no error.
	foreignForm, ok := foreign.Append(nil, b, foreign.All&^foreign.Unknown, newDraw(sum.Sum64()))
	if !ok {
		return errors.New("accepted, but no message to another encoder")
	}
	if limits := protocol.DefaultLimits(); len(foreignForm) > limits.MessageBytes {
		return nil
	}
	if err := into.Decode(foreignForm, nil); err != nil {
		return fmt.Errorf("accepted, but not as %x: %w", foreignForm, err)
	}
	if textOf(into) != textOf(m) {
		return fmt.Errorf("means %s, and %s as %x", textOf(m), textOf(into), foreignForm)
	}
	return nil
}

// newDraw returns draws that depend on a seed only.
func newDraw(seed uint64) foreign.Draw {
	return func(n int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed >> 33 % uint64(n))
	}
}

func checkPeekTag(b []byte) error {
	tag, err := peekTag(b)
	described, describeErr := protocol.Describe(b, nil)
	if len(described) > 64*len(b)+256 {
		return fmt.Errorf("%d bytes of text for %d", len(described), len(b))
	}
	if err != nil {
		if bad := checkDecodeError(b, err); bad != nil {
			return bad
		}
		if describeErr == nil {
			return fmt.Errorf("described, but refused by PeekTag: %w", err)
		}
	}
	for want := protocol.TagAllocRequest; protocol.NewMessage(want) != nil; want++ {
		m := protocol.NewMessage(want)
		decodeErr := m.Decode(b, nil)
		switch {
		case protocol.HasTag(b, want, nil) != (err == nil && tag == want && !isJSON(b)):
			return fmt.Errorf("PeekTag finds %v, %w, and HasTag of %v does not agree", tag, err, want)
		case decodeErr == nil && err != nil:
			return fmt.Errorf("%T accepted, but refused by PeekTag: %w", m, err)
		case tag == want && (decodeErr == nil) != (describeErr == nil):
			return fmt.Errorf("Decode says %v, Describe %v", decodeErr, describeErr) //nolint:staticcheck // names of functions
		}
	}
	return nil
}

// The worst case is a list of empty keys: a byte each on the wire, a slice header each in memory.
func checkMemory(b []byte) error {
	const multiple, fixed = 64, 64 << 10 // The fuzzer's own goroutines allocate as well.
	all := nixlMessages()
	for tag := protocol.TagAllocRequest; protocol.NewMessage(tag) != nil; tag++ {
		all = append(all, protocol.NewMessage(tag))
	}
	for _, m := range all {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = m.Decode(b, nil)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > multiple*uint64(len(b))+fixed {
			return fmt.Errorf("%T allocates %d bytes for %d", m, got, len(b))
		}
	}
	return nil
}

func checkDecodeError(b []byte, err error) error {
	var refused *protocol.DecodeError
	if !errors.As(err, &refused) || refused.Offset < 0 || refused.Offset > len(b) || refused.Code == 0 {
		return fmt.Errorf("got %#v", err)
	}
	if n := len(err.Error()); n > 1024 {
		return fmt.Errorf("an error of %d bytes: %w", n, err)
	}
	return nil
}

// textOf returns every field as text; nil and empty lists give the same text.
func textOf(m protocol.Message) string { return fmt.Sprintf("%T%+v", m, m) }
