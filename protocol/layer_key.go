package protocol

import (
	"bytes"
	"strconv"
)

// A layer's key is LMCache's LayerCacheEngineKey: the key of the layer's chunk, with the layer's number behind the dtype
// and before the tags,
//
//	model@world_size@worker_id@hash@dtype@layer[@tag%value...]
//
// No key of a chunk has this form, because the part behind the dtype is then a tag, and a tag contains a '%'.

// LayersMax is the limit on the layers of a chunk.
const LayersMax = 1024

// AppendLayerKey appends the key of one layer of the chunk with the given key.
func AppendLayerKey(b, key []byte, layer uint32) []byte {
	at := behindDtype(key)
	b = append(b, key[:at]...)
	b = strconv.AppendUint(append(b, '@'), uint64(layer), 10)
	return append(b, key[at:]...)
}

// A LayerKeyCheck splits and checks the keys of a batch of layers one after another, as KeyCheck checks keys. It keeps
// memory for two keys of chunks; the zero value is ready to use.
type LayerKeyCheck struct {
	check KeyCheck
	bufs  [2][]byte
	right int // index of the buffer whose key check compares with, so this buffer must not be overwritten
}

// Split returns the layer of a key, and the key of the layer's chunk, which is valid until the next call. The error is
// a *KeyError.
func (c *LayerKeyCheck) Split(b []byte, maxBytes int) (chunk []byte, layer uint32, err error) {
	if len(b) > maxBytes {
		return nil, 0, keyError(KeyTooLong, b)
	}
	from := behindDtype(b)
	if from == len(b) {
		return nil, 0, errNoLayer
	}
	end := len(b)
	if i := bytes.IndexByte(b[from+1:], '@'); i >= 0 {
		end = from + 1 + i
	}
	layer, ok := decimal(b[from+1:end], LayersMax-1)
	if !ok {
		return nil, 0, keyError(KeyLayer, b[from+1:end])
	}
	other := 1 - c.right
	chunk = append(append(c.bufs[other][:0], b[:from]...), b[end:]...)
	c.bufs[other] = chunk
	if err := c.check.Check(chunk, maxBytes); err != nil {
		return nil, 0, err
	}
	if len(c.check.like) > 0 && &c.check.like[0] == &chunk[0] {
		c.right = other
	}
	return chunk, layer, nil
}

// errNoLayer is the error for the key of a whole chunk. Callers that accept both kinds of keys get this error often, so
// it is allocated only once.
var errNoLayer = keyError(KeyLayer, nil)

// behindDtype returns the offset at which the fifth part of a key ends.
func behindDtype(key []byte) (at int) {
	for range 5 {
		i := bytes.IndexByte(key[at:], '@')
		if i < 0 {
			return len(key)
		}
		at += i + 1
	}
	return at - 1
}
