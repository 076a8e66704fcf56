package recording

import (
	"encoding/binary"
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/snapshot"
)

// An effectHasher hashes the effects of steps. It belongs to a single goroutine.
type effectHasher struct{ walker *snapshot.Walker }

func newEffectHasher() effectHasher {
	// The rules only save time: without them, each field and byte of these types is a word.
	return effectHasher{snapshot.New(
		snapshot.Rule{Type: reflect.TypeFor[effects.Page](), Hash: func(h *snapshot.Hasher, p unsafe.Pointer) {
			page := (*effects.Page)(p)
			h.Word(uint64(page.Pool)<<32 | uint64(page.Index))
			h.Word(uint64(page.Length)<<32 | uint64(page.Sum))
			h.Word(uint64(page.Generation))
		}},
		snapshot.Rule{Type: reflect.TypeFor[effects.Incarnation](), Hash: func(h *snapshot.Hasher, p unsafe.Pointer) {
			id := (*effects.Incarnation)(p)
			h.Word(binary.LittleEndian.Uint64(id[:8]))
			h.Word(binary.LittleEndian.Uint64(id[8:]))
		}},
	)}
}

// hash returns the hash of the effects of a step, in order. Bytes of pages are not part of it: a Send has room for them
// behind its body, with arbitrary content until they are filled in, and a Store has the bytes that a message carried.
func (h effectHasher) hash(out *effects.Effects) uint64 {
	var all snapshot.Hasher
	for i := range out.Len() {
		e := out.At(i)
		all.Word(uint64(effects.KindOf(e)))
		all.Word(h.hashEffect(e))
	}
	return all.Sum()
}

func (h effectHasher) hashEffect(e effects.Effect) uint64 {
	w := h.walker
	switch e := e.(type) {
	case *effects.Open:
		return snapshot.Hash(w, e)
	case *effects.Close:
		return snapshot.Hash(w, e)
	case *effects.Send:
		own := *e
		for _, page := range e.Carries {
			own.Body = own.Body[:len(own.Body)-int(page.Length)]
		}
		return snapshot.Hash(w, &own)
	case *effects.Post:
		return snapshot.Hash(w, e)
	case *effects.Reply:
		return snapshot.Hash(w, e)
	case *effects.Import:
		return snapshot.Hash(w, e)
	case *effects.Drop:
		return snapshot.Hash(w, e)
	case *effects.Publish:
		return snapshot.Hash(w, e)
	case *effects.Grant:
		return snapshot.Hash(w, e)
	case *effects.Revoke:
		return snapshot.Hash(w, e)
	case *effects.Transfer:
		return snapshot.Hash(w, e)
	case *effects.Copy:
		return snapshot.Hash(w, e)
	case *effects.Store:
		return snapshot.Hash(w, &struct {
			page   effects.Page
			length int
		}{e.Page, len(e.Bytes)})
	case *effects.Cancel:
		return snapshot.Hash(w, e)
	case *effects.Confirm:
		return snapshot.Hash(w, e)
	case *effects.Scatter:
		return snapshot.Hash(w, e)
	case *effects.Deliver:
		return snapshot.Hash(w, e)
	case *effects.Return:
		return snapshot.Hash(w, e)
	case *effects.Observe:
		return snapshot.Hash(w, e)
	case *effects.Verify:
		return snapshot.Hash(w, e)
	}
	panic("BUG: effect of unknown kind")
}

// appendKinds appends the kinds of the effects, a byte each.
func appendKinds(b []byte, out *effects.Effects) []byte {
	for i := range out.Len() {
		b = append(b, byte(effects.KindOf(out.At(i))))
	}
	return b
}
