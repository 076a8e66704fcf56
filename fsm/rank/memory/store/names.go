package store

import (
	"bytes"
	"encoding/binary"

	"github.com/kvferry/kvferry/fsm/table"
)

// names are the keys of entries. Keys of one model differ by a chunk's hash alone, 16 hex digits of some 50 bytes: so
// what stands around the digits, their shape, is kept once, and of a key no more than the shape and the digits as a
// number. A key that is not of this kind, or of a shape for which there is no room any more, is kept as it is.
type names struct {
	shapes table.Slab[shape]
	whole  table.Slab[[]byte]
	last   table.Handle // the shape that was looked for last
	buf    []byte
}

// A shape is what keys have in common that differ by their digits.
type shape struct {
	before, after []byte
	digits        int    // how many
	uses          uint32 // keys that have it
}

const (
	shapesMax = 64 // peers choose keys: they get no table of shapes as large as that of entries
	digitsMax = 16 // as many as a word has
)

func (n *names) emptied(most int) names {
	return names{shapes: n.shapes.Emptied(shapesMax), whole: n.whole.Emptied(most), buf: n.buf[:0]}
}

// add keeps a key, under the slot of its shape from 1, or that of the whole key from -1, and what its digits come to.
func (n *names) add(key []byte) (at int32, digits uint64) {
	from, to := hexPart(key)
	if h := n.shapeOf(key[:from], key[to:], to-from); h != 0 {
		n.shapes.Get(h).uses++
		return h.Slot() + 1, parseHex(key[from:to])
	}
	h, b := n.whole.Add()
	*b = append((*b)[:0], key...)
	return -h.Slot() - 1, 0
}

// remove forgets a key.
func (n *names) remove(at int32) {
	if at < 0 {
		h := n.whole.At(-at - 1)
		b := n.whole.Get(h)
		*b = table.ShedBytes(*b)
		n.whole.Remove(h)
		return
	}
	h := n.shapes.At(at - 1)
	x := n.shapes.Get(h)
	if x.uses--; x.uses == 0 {
		x.before, x.after = table.ShedBytes(x.before), table.ShedBytes(x.after)
		n.shapes.Remove(h)
	}
}

// is says whether this is the key.
func (n *names) is(at int32, digits uint64, key []byte) bool {
	if at < 0 {
		return bytes.Equal(*n.whole.Get(n.whole.At(-at - 1)), key)
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

// append appends the key.
func (n *names) append(b []byte, at int32, digits uint64) []byte {
	if at < 0 {
		return append(b, *n.whole.Get(n.whole.At(-at - 1))...)
	}
	x := n.shapes.Get(n.shapes.At(at - 1))
	text := hexText(digits)
	return append(append(append(b, x.before...), text[digitsMax-x.digits:]...), x.after...)
}

// text is the key, until the next call.
func (n *names) text(at int32, digits uint64) []byte {
	n.buf = n.append(n.buf[:0], at, digits)
	return n.buf
}

// shapeOf finds or makes the shape of a key, or is zero.
func (n *names) shapeOf(before, after []byte, digits int) table.Handle {
	if digits == 0 {
		return 0
	}
	if x := n.shapes.Get(n.last); x != nil && x.is(before, after, digits) {
		return n.last
	}
	for slot := range n.shapes.Slots() {
		if h := n.shapes.At(slot); h != 0 && n.shapes.Get(h).is(before, after, digits) {
			n.last = h
			return h
		}
	}
	h, x := n.shapes.Add()
	if x != nil {
		x.before, x.after = append(x.before[:0], before...), append(x.after[:0], after...)
		x.digits, x.uses, n.last = digits, 0, h
	}
	return h
}

func (x *shape) is(before, after []byte, digits int) bool {
	return x.digits == digits && bytes.Equal(x.before, before) && bytes.Equal(x.after, after)
}

// hexPart is the last part of a key, between two '@', that is a hash of no more digits than a word has.
func hexPart(key []byte) (from, to int) {
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

func allHex(b []byte) bool {
	for _, c := range b {
		if c-'0' > 9 && c-'a' > 5 {
			return false
		}
	}
	return len(b) > 0
}

// parseHex is the number that lower-case hex digits are.
func parseHex(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<4 | uint64(c&0xF+c>>6*9)
	}
	return v
}

// hexText is a number as lower-case hex digits, all of a word.
func hexText(v uint64) (b [digitsMax]byte) {
	binary.BigEndian.PutUint64(b[:8], eightDigits(v>>32))
	binary.BigEndian.PutUint64(b[8:], eightDigits(v&0xFFFFFFFF))
	return b
}

// eightDigits is half a word with each hex digit in a byte of its own.
func eightDigits(x uint64) uint64 {
	x = (x | x<<16) & 0x0000FFFF0000FFFF
	x = (x | x<<8) & 0x00FF00FF00FF00FF
	x = (x | x<<4) & 0x0F0F0F0F0F0F0F0F
	letters := (x + 0x0606060606060606) >> 4 & 0x0101010101010101
	return x + 0x3030303030303030 + letters*('a'-'0'-10)
}
