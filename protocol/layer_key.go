package protocol

import (
	"bytes"
	"strconv"
)

// A layer's key is LMCache's LayerCacheEngineKey: the key of the layer's chunk, with the layer's number behind the
// dtype and before the tags,
//
//	model@world_size@worker_id@hash@dtype@layer[@tag%value...]
//
// No key of a chunk has this form, because the part behind the dtype is then a tag, and a tag contains a '%'.

// LayersMax is the limit on the layers of a chunk.
const LayersMax = 1024

// AppendLayerKey appends the key of one layer of the chunk with the given key.
func AppendLayerKey(b, key []byte, layer uint32) []byte {
	at := dtypeEnd(key)
	b = append(b, key[:at]...)
	b = strconv.AppendUint(append(b, '@'), uint64(layer), 10)
	return append(b, key[at:]...)
}

// A LayerKeyChecker splits and checks the keys of layers one after another, as KeyChecker checks keys, but the keys may
// be keys of several batches and so of several tenants. It keeps memory for two keys of chunks; the zero value is ready
// to use.
type LayerKeyChecker struct {
	checker KeyChecker
	bufs    [2][]byte
	current int // index of the buffer whose key check compares with, so this buffer must not be overwritten
}

// Split returns the layer of a key, and the key of the layer's chunk, which is valid until the next call. The error is
// a *KeyError.
func (c *LayerKeyChecker) Split(b []byte, maxBytes int) (chunk []byte, layer uint32, err error) {
	if len(b) > maxBytes {
		return nil, 0, newKeyError(KeyTooLong, b)
	}
	from := dtypeEnd(b)
	if from == len(b) {
		return nil, 0, errNoLayer
	}
	end := len(b)
	if i := bytes.IndexByte(b[from+1:], '@'); i >= 0 {
		end = from + 1 + i
	}
	layer, ok := parseDecimal(b[from+1:end], LayersMax-1)
	if !ok {
		return nil, 0, newKeyError(KeyLayer, b[from+1:end])
	}
	spare := 1 - c.current
	chunk = append(append(c.bufs[spare][:0], b[:from]...), b[end:]...)
	c.bufs[spare] = chunk
	c.checker.hasTenant = false
	if err := c.checker.Check(chunk, maxBytes); err != nil {
		return nil, 0, err
	}
	if len(c.checker.last) > 0 && &c.checker.last[0] == &chunk[0] {
		c.current = spare
	}
	return chunk, layer, nil
}

// errNoLayer is the error for the key of a whole chunk. Callers that accept both kinds of keys get this error often, so
// it is allocated only once.
var errNoLayer = newKeyError(KeyLayer, nil)

// dtypeEnd returns the offset at which the fifth part of a key ends.
func dtypeEnd(key []byte) (at int) {
	for range 5 {
		i := bytes.IndexByte(key[at:], '@')
		if i < 0 {
			return len(key)
		}
		at += i + 1
	}
	return at - 1
}
