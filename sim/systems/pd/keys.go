package pd

import (
	"bytes"

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

// Number is the number of a key.
func (k keys) Number(name []byte) (uint32, bool) {
	for i, text := range k {
		if text != nil && bytes.Equal(text, name) {
			return uint32(i), true
		}
	}
	return 0, false
}

// make spells a key.
func (k keys) make(id uint32, memory *world.Arena[byte]) []byte {
	key := protocol.Key{Model: "sim", WorldSize: 1, Hash: "0", Dtype: protocol.DtypeBFloat16}
	const digits = "0123456789abcdef"
	h := make([]byte, 0, 16)
	for v := uint64(id*2654435761) | 1<<32; v > 0; v >>= 4 {
		h = append(h, digits[v&15])
	}
	key.Hash = string(h)
	k[id] = key.AppendTo(memory.Take(keyRoom)[:0])
	return k[id]
}

// keyRoom is enough for the text of such a key.
const keyRoom = 32
