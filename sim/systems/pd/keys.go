package pd

import (
	"bytes"
	"strings"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// keys holds the spelled keys of chunks, by number. A nil entry is a key that has not been used.
type keys [][]byte

// room clears the keys of the previous run and makes space for the given number of keys.
func (k *keys) room(most int) {
	if cap(*k) < most {
		*k = make([][]byte, most)
	}
	*k = (*k)[:most]
	clear(*k)
}

// The hash in a key is the key's number multiplied by spread (modulo 2^32), so the number can be computed from the
// hash. The hexadecimal digits are in little-endian order.
const (
	digits   = "0123456789abcdef"
	spread   = 2654435761
	unspread = 244002641 // the inverse of spread modulo 2^32
)

// Number returns the number of a key. The result is false if k does not contain the key.
func (k keys) Number(name []byte) (uint32, bool) {
	if len(name) < len(keyText) {
		return 0, false
	}
	spelled := uint32(0)
	for i, c := range name[keyHash : keyHash+8] {
		spelled |= uint32(c&15+c>>6*9) << (4 * i)
	}
	id := spelled * unspread
	if layer := name[len(keyText):]; len(layer) > 1 { // The suffix is the index of the layer in its chunk.
		before := uint32(0)
		for _, c := range layer[1:] {
			before = before*10 + uint32(c-'0')
		}
		id += before
	}
	if int(id) >= len(k) || !bytes.Equal(k[id], name) {
		return 0, false
	}
	return id, true
}

// make returns the key with the given number, and spells it on first use.
func (k keys) make(id uint32, memory *world.Arena[byte]) []byte {
	if k[id] == nil {
		k[id] = k.spell(id, memory)
	}
	return k[id]
}

// spell returns the text of the key with the given number.
func (keys) spell(id uint32, memory *world.Arena[byte]) []byte {
	key := memory.Keep([]byte(keyText))
	for i := range 8 {
		key[keyHash+i] = digits[id*spread>>(4*i)&15]
	}
	return key
}

// keyText is the text that all keys have in common: a model, the world size, a worker, a hash of nine digits and a
// type.
var keyText = (&protocol.Key{Model: "sim", WorldSize: 1, Hash: "000000001", Dtype: protocol.DtypeBFloat16}).String()

// keyHash is the position of the hash in keyText.
var keyHash = strings.Index(keyText, "000000001")
