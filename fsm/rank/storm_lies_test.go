package rank

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestStormsOfLies runs storms in which one rank lies: its machine is correct, but its messages, requests and replies are
// changed now and then. Its peers, which have shaken hands with it, then hear of pages, grants, leases, lengths and
// counts that do not exist. All promises of a storm must still hold, with one exception. On a leased plane, where only
// the owner could notice the access, two reads may use a grant that is over: a read of the liar's pages, and a read by
// the liar itself. Example of the second: the liar's acknowledgement of an offer is changed into a refusal, so the
// sender takes the pages back while the liar reads them.
func TestStormsOfLies(t *testing.T) {
	for _, shares := range []bool{false, true} {
		t.Run(map[bool]string{false: "pulls", true: "shares"}[shares], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newStorm(t, shares)
				s.liar = s.node()
				for range rapid.IntRange(20, 400).Draw(t, "moments") {
					s.moment()
				}
				s.finishStorm()
			})
		})
	}
}

// outgoingBytes returns what a node says as it goes out: a copy, which is changed if the node lies.
func (s *storm) outgoingBytes(n *stormNode, body []byte) []byte {
	body = append([]byte(nil), body...)
	if n != s.liar || s.calm {
		return body
	}
	return maybeChange(s.t, body)
}

// maybeChange changes a message of three in one value or two.
func maybeChange(t *rapid.T, body []byte) []byte {
	if rapid.IntRange(0, 2).Draw(t, "lies") > 0 {
		return body
	}
	for range rapid.IntRange(1, 2).Draw(t, "changes") {
		var all []msgpackValue
		if _, ok := unpack(body, 0, &all); ok {
			body = changeValue(t, body, all)
		}
	}
	return body
}

// A msgpackValue is a value of a message in msgpack: its bytes from start to end, and the values in it.
type msgpackValue struct {
	start, end int
	kind       byte
	items      []msgpackValue // of an array
}

// The kinds of values that a lie changes. Maps are told by their values.
const (
	otherValue byte = iota
	numberValue
	boolValue
	arrayValue
	bytesValue
)

// unpack reads the value at a place, and adds it and what is in it to all. It returns false for what is no msgpack, or
// for kinds that no message of a rank has.
func unpack(b []byte, at int, all *[]msgpackValue) (v msgpackValue, ok bool) {
	if at >= len(b) {
		return v, false
	}
	v = msgpackValue{start: at}
	head, at := b[at], at+1
	size := func(n int) int { // reads a number of n bytes
		if at+n > len(b) {
			return -1
		}
		var wide [8]byte
		copy(wide[8-n:], b[at:at+n])
		at += n
		return int(binary.BigEndian.Uint64(wide[:]) & (1<<31 - 1))
	}
	count, pairs := 0, false
	switch {
	case head <= 0x7F, head >= 0xE0:
		v.kind = numberValue
	case head <= 0x8F:
		count, pairs = int(head&0x0F), true
	case head <= 0x9F:
		count, v.kind = int(head&0x0F), arrayValue
	case head <= 0xBF:
		at += int(head & 0x1F)
		v.kind = bytesValue
	case head == 0xC2, head == 0xC3:
		v.kind = boolValue
	case head >= 0xC4 && head <= 0xC6:
		at += size(1 << (head - 0xC4))
		v.kind = bytesValue
	case head >= 0xCA && head <= 0xCB:
		at += 4 << (head - 0xCA)
	case head >= 0xCC && head <= 0xCF:
		at += 1 << (head - 0xCC)
		v.kind = numberValue
	case head >= 0xD0 && head <= 0xD3:
		at += 1 << (head - 0xD0)
		v.kind = numberValue
	case head >= 0xD9 && head <= 0xDB:
		at += size(1 << (head - 0xD9))
		v.kind = bytesValue
	case head == 0xDC, head == 0xDD:
		count, v.kind = size(2<<(head-0xDC)), arrayValue
	case head == 0xDE, head == 0xDF:
		count, pairs = size(2<<(head-0xDE)), true
	case head == 0xC0:
	default:
		return v, false
	}
	for i := 0; i < count; i++ {
		if pairs {
			key, ok := unpack(b, at, new([]msgpackValue))
			if !ok {
				return v, false
			}
			at = key.end
		}
		item, ok := unpack(b, at, all)
		if !ok {
			return v, false
		}
		v.items, at = append(v.items, item), item.end
	}
	v.end = at
	*all = append(*all, v)
	return v, at <= len(b)
}

// changeValue changes one value of a message.
func changeValue(t *rapid.T, b []byte, all []msgpackValue) []byte {
	v := all[rapid.IntRange(0, len(all)-1).Draw(t, "value")]
	with := func(value []byte) []byte {
		return append(append(append([]byte(nil), b[:v.start]...), value...), b[v.end:]...)
	}
	switch v.kind {
	case numberValue:
		n := rapid.OneOf(rapid.Uint64Range(0, 9), rapid.SampledFrom([]uint64{1 << 31, 1<<32 - 1, 1 << 62, 1<<64 - 1})).
			Draw(t, "number")
		return with(binary.BigEndian.AppendUint64([]byte{0xCF}, n))
	case boolValue:
		return with([]byte{b[v.start] ^ 1})
	case arrayValue:
		return with(changeArray(t, b, v.items))
	case bytesValue:
		if len := v.end - v.start; len > 1 {
			at := v.start + rapid.IntRange(1, len-1).Draw(t, "at")
			b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
	}
	return b
}

// changeArray leaves an item out, or has one twice.
func changeArray(t *rapid.T, b []byte, items []msgpackValue) []byte {
	items = append([]msgpackValue(nil), items...)
	if len(items) > 0 {
		i := rapid.IntRange(0, len(items)-1).Draw(t, "item of it")
		if rapid.Bool().Draw(t, "twice") {
			items = append(items, items[i])
		} else {
			items = append(items[:i:i], items[i+1:]...)
		}
	}
	out := binary.BigEndian.AppendUint16([]byte{0xDC}, uint16(len(items)))
	for _, item := range items {
		out = append(out, b[item.start:item.end]...)
	}
	return out
}
