package pd

import "bytes"

// Keys of chunks, by number.

// roomForKeys forgets the keys of another run.
func (w *Cluster) roomForKeys() {
	keys := int(w.Plan.keys) + w.Plan.probesMax()
	if cap(w.Keys) < keys {
		w.Keys = make([][]byte, keys)
	}
	w.Keys = w.Keys[:keys]
	clear(w.Keys)
}

// KeyNumber is the number of a key.
func (w *Cluster) KeyNumber(name []byte) (uint32, bool) {
	for k, text := range w.Keys {
		if text != nil && bytes.Equal(text, name) {
			return uint32(k), true
		}
	}
	return 0, false
}
