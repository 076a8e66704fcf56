package store

import (
	"bytes"
	"encoding/binary"

	"github.com/kvferry/kvferry/fsm/table"
)

// names stores the keys of the entries in compact form. The keys of one model differ only in the hash of the chunk: 16
// hex digits in some 50 bytes. So the text around the digits, the shape, is stored once, and each key is a shape and a
// number. A key is stored whole if it has no such digits, or if the table of shapes has no room.
type names struct {
	shapes    table.Slab[shape]
	wholeKeys table.Slab[[]byte]
	lastShape table.Handle // the shape that was looked up last
	textBuf   []byte       // the result of text
}

// A shape is the common text of keys that differ only in their digits.
type shape struct {
	before, after []byte
	digits        int    // number of digits
	uses          uint32 // number of keys that have the shape
}

const (
	shapesMax = 64 // peers choose the keys, so the table of shapes must not become as large as that of entries
	digitsMax = 16 // hex digits of a uint64
)

func (n *names) recycle(limit int) names {
	return names{shapes: n.shapes.Recycle(shapesMax), wholeKeys: n.wholeKeys.Recycle(limit), textBuf: n.textBuf[:0]}
}

// addKey stores a key. addKey returns 1 + the slot of the key's shape and the value of the digits, or, for a key that
// is stored whole, -1 - its slot and zero.
func (n *names) addKey(key []byte) (at int32, digits uint64) {
	from, to := findHex(key)
	if h := n.shapeOf(key[:from], key[to:], to-from); h != 0 {
		n.shapes.Get(h).uses++
		return h.Slot() + 1, parseHex(key[from:to])
	}
	h, b := n.wholeKeys.Add()
	*b = append((*b)[:0], key...)
	return -h.Slot() - 1, 0
}

// removeKey deletes a key. at is the number that add returned.
func (n *names) removeKey(at int32) {
	if at < 0 {
		h := n.wholeKeys.At(-at - 1)
		b := n.wholeKeys.Get(h)
		*b = table.TrimBytes(*b)
		n.wholeKeys.Remove(h)
		return
	}
	h := n.shapes.At(at - 1)
	x := n.shapes.Get(h)
	if x.uses--; x.uses == 0 {
		x.before, x.after = table.TrimBytes(x.before), table.TrimBytes(x.after)
		n.shapes.Remove(h)
	}
}

// equalsKey reports whether a stored key equals key.
func (n *names) equalsKey(at int32, digits uint64, key []byte) bool {
	if at < 0 {
		return bytes.Equal(*n.wholeKeys.Get(n.wholeKeys.At(-at - 1)), key)
	}
	x := n.shapes.Get(n.shapes.At(at - 1))
	from, to := len(x.before), len(x.before)+x.digits
	if len(key) != to+len(x.after) {
		return false
	}
	text := hexText(digits)
	return bytes.Equal(key[from:to], text[digitsMax-x.digits:]) &&
		bytes.Equal(key[:from], x.before) && bytes.Equal(key[to:], x.after)
}

// appendKey appends the text of a stored key to b.
func (n *names) appendKey(b []byte, at int32, digits uint64) []byte {
	if at < 0 {
		return append(b, *n.wholeKeys.Get(n.wholeKeys.At(-at - 1))...)
	}
	x := n.shapes.Get(n.shapes.At(at - 1))
	text := hexText(digits)
	return append(append(append(b, x.before...), text[digitsMax-x.digits:]...), x.after...)
}

// keyText returns the text of a stored key, which is valid until the next call.
func (n *names) keyText(at int32, digits uint64) []byte {
	n.textBuf = n.appendKey(n.textBuf[:0], at, digits)
	return n.textBuf
}

// shapeOf returns the shape with this text, and inserts it if there is none. shapeOf returns zero if there are no
// digits, or if there is no room.
func (n *names) shapeOf(before, after []byte, digits int) table.Handle {
	if digits == 0 {
		return 0
	}
	if x := n.shapes.Get(n.lastShape); x != nil && x.matchesText(before, after, digits) {
		return n.lastShape
	}
	for slot := range n.shapes.Slots() {
		if h := n.shapes.At(slot); h != 0 && n.shapes.Get(h).matchesText(before, after, digits) {
			n.lastShape = h
			return h
		}
	}
	h, x := n.shapes.Add()
	if x != nil {
		x.before, x.after = append(x.before[:0], before...), append(x.after[:0], after...)
		x.digits, x.uses, n.lastShape = digits, 0, h
	}
	return h
}

func (x *shape) matchesText(before, after []byte, digits int) bool {
	return x.digits == digits && bytes.Equal(x.before, before) && bytes.Equal(x.after, after)
}

// findHex returns the bounds of the last part of a key that ends before an '@', begins at the start or after an '@',
// and consists of 1 to 16 lower-case hex digits. findHex returns 0, 0 if there is none.
func findHex(key []byte) (from, to int) {
	for to = len(key); to > 0; to = from - 1 {
		from = bytes.LastIndexByte(key[:to], '@') + 1
		if from == 0 {
			break
		}
		if to < len(key) && to-from <= digitsMax && allHex(key[from:to]) {
			return from, to
		}
	}
	return 0, 0
}

// allHex reports whether b consists of lower-case hex digits, and is not empty.
func allHex(b []byte) bool {
	for _, c := range b {
		if c-'0' > 9 && c-'a' > 5 {
			return false
		}
	}
	return len(b) > 0
}

// parseHex returns the value of lower-case hex digits.
func parseHex(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<4 | uint64(c&0xF+c>>6*9)
	}
	return v
}

// hexText returns a number as 16 lower-case hex digits.
func hexText(v uint64) (b [digitsMax]byte) {
	binary.BigEndian.PutUint64(b[:8], eightDigits(v>>32))
	binary.BigEndian.PutUint64(b[8:], eightDigits(v&0xFFFFFFFF))
	return b
}

// eightDigits returns the 8 hex digits of a 32-bit number, each as a character in a byte of its own.
func eightDigits(x uint64) uint64 {
	x = (x | x<<16) & 0x0000FFFF0000FFFF
	x = (x | x<<8) & 0x00FF00FF00FF00FF
	x = (x | x<<4) & 0x0F0F0F0F0F0F0F0F
	letters := (x + 0x0606060606060606) >> 4 & 0x0101010101010101
	return x + 0x3030303030303030 + letters*('a'-'0'-10)
}
