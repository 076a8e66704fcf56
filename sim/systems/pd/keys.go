package pd

import (
	"bytes"
	"strings"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// keys are those of chunks, by number; nil: nobody has that one.
type keys [][]byte

// room forgets the keys of another run.
func (k *keys) room(most int) {
	if cap(*k) < most {
		*k = make([][]byte, most)
	}
	*k = (*k)[:most]
	clear(*k)
}

// The hash of a key is its number, spread: so it tells the number, too. Its digits come lowest first.
const (
	digits   = "0123456789abcdef"
	spread   = 2654435761
	unspread = 244002641 // spread times this is 1
)

// Number is the number of a key.
func (k keys) Number(name []byte) (uint32, bool) {
	if len(name) < len(keyText) {
		return 0, false
	}
	spelled := uint32(0)
	for i, c := range name[keyHash : keyHash+8] {
		spelled |= uint32(c&15+c>>6*9) << (4 * i)
	}
	id := spelled * unspread
	if layer := name[len(keyText):]; len(layer) > 1 { // It says how many come before it in its chunk.
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

// make spells a key.
func (k keys) make(id uint32, memory *world.Arena[byte]) []byte {
	if k[id] == nil {
		k[id] = k.spell(id, memory)
	}
	return k[id]
}

// spell writes the key with a number.
func (keys) spell(id uint32, memory *world.Arena[byte]) []byte {
	key := memory.Keep([]byte(keyText))
	for i := range 8 {
		key[keyHash+i] = digits[id*spread>>(4*i)&15]
	}
	return key
}

// keyText is what all keys have in common: a model, the world's size, a worker, a hash of nine digits and a type.
var keyText = (&protocol.Key{Model: "sim", WorldSize: 1, Hash: "000000001", Dtype: protocol.DtypeBFloat16}).String()

// keyHash is where in it the hash begins.
var keyHash = strings.Index(keyText, "000000001")
