package pd

import (
	"bytes"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// keyTable holds the spelled keys of chunks, by number. A nil entry is a key that has not been used.
type keyTable [][]byte

// resetTo clears the keys of the previous run and makes space for the given number of keys.
func (k *keyTable) resetTo(count int) {
	if cap(*k) < count {
		*k = make([][]byte, count)
	}
	*k = (*k)[:count]
	clear(*k)
}

// The hash in a key is the key's number multiplied by spread (modulo 2^32), so the number can be computed from the
// hash. The hexadecimal digits are in little-endian order.
const (
	hexDigits   = "0123456789abcdef"
	hashFactor  = 2654435761
	hashInverse = 244002641 // the inverse of spread modulo 2^32
)

// NumberOf returns the number of a key. The result is false if k does not contain the key.
func (k keyTable) NumberOf(name []byte) (uint32, bool) {
	text := name
	if protocol.TenantOf(text) != 0 {
		text = text[:len(text)-protocol.TenantBytes]
	}
	if len(text) < len(keyTemplate) {
		return 0, false
	}
	hash := uint32(0)
	for i, c := range text[hashOffset : hashOffset+8] {
		hash |= uint32(c&15+c>>6*9) << (4 * i)
	}
	id := hash * hashInverse
	if layer := text[len(keyTemplate):]; len(layer) > 1 { // The suffix is the index of the layer in its chunk.
		layerIndex := uint32(0)
		for _, c := range layer[1:] {
			layerIndex = layerIndex*10 + uint32(c-'0')
		}
		id += layerIndex
	}
	if int(id) >= len(k) || !bytes.Equal(k[id], name) {
		return 0, false
	}
	return id, true
}

// keyOf returns the key of a tenant with the given number, and spells it on first use.
func (k keyTable) keyOf(id uint32, tenant effects.Tenant, memory *world.Arena[byte]) []byte {
	if k[id] == nil {
		k[id] = k.spellKey(id, tenant, memory)
	}
	return k[id]
}

// spellKey returns the text of the key of a tenant with the given number.
func (keyTable) spellKey(id uint32, tenant effects.Tenant, memory *world.Arena[byte]) []byte {
	size := len(keyTemplate)
	if tenant != 0 {
		size += protocol.TenantBytes
	}
	key := protocol.AppendTenant(append(memory.Alloc(size)[:0], keyTemplate...), uint64(tenant))
	for i := range 8 {
		key[hashOffset+i] = hexDigits[id*hashFactor>>(4*i)&15]
	}
	return key
}

// keyTemplate is the text that all keys have in common: a model, the world size, a worker, a hash of nine digits and a
// type.
var keyTemplate = (&protocol.Key{Model: "sim", WorldSize: 1, Hash: "000000001", Dtype: protocol.DtypeBFloat16}).String()

// hashOffset is the position of the hash in keyTemplate.
var hashOffset = strings.Index(keyTemplate, "000000001")
