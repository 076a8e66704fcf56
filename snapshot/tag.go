package snapshot

import (
	"fmt"
	"reflect"
	"unsafe"
)

// tagKey is the key of the tags that the walker reads: `snap:"word"`, with one word for each field.
const tagKey = "snap"

// The words that the walker knows. All other words need a rule.
const (
	tagScratch = "scratch" // of use within one step only: zero in a clone, not hashed
	tagShare   = "share"   // never changes, or is common to all: shared by clones, not hashed
	tagSkip    = "skip"    // decides nothing: cloned, not hashed
	tagSet     = "set"     // a number that is hashed only as zero or not zero
	tagPast    = "past"    // what the next value in a slot continues from: see Walker.PastHash
	tagLife    = "life"    // a flag; while it is false, nothing of its struct is hashed
	tagBeside  = "beside"  // slices: only elements with a live neighbour in the preceding field are written
)

// wordOf returns the word in the snap tag of a field, or an empty text.
func wordOf(f *reflect.StructField) string { return f.Tag.Get(tagKey) }

// isKnownWord reports whether the walker has a meaning for word.
func isKnownWord(word string) bool {
	switch word {
	case tagScratch, tagShare, tagSkip, tagSet, tagPast, tagLife, tagBeside:
		return true
	default:
		return false
	}
}

// isInteger reports whether values of t are integers.
func isInteger(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr }

// compileSet returns a function that hashes whether a number is zero.
func compileSet(_ *Walker, t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	if !isInteger(t) {
		panic(fmt.Sprintf("BUG: a field of type %s has the tag %s:%q, which is for numbers", t, tagKey, tagSet))
	}
	size := t.Size()
	return func(h *Hasher, p unsafe.Pointer) {
		for _, b := range unsafe.Slice((*byte)(p), size) {
			if b != 0 {
				h.Word(1)
				return
			}
		}
		h.Word(0)
	}
}

// lifeFlagOffset returns the offset of the flag in struct type t that says whether the struct is hashed, and reports
// false if t has none, and panics if t has two or the flag is not a bool.
func lifeFlagOffset(t reflect.Type) (at uintptr, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if wordOf(&f) != tagLife {
			continue
		}
		if f.Type.Kind() != reflect.Bool || ok {
			panic(fmt.Sprintf("BUG: %s.%s has the tag %s:%q, which is for one bool of a struct", t, f.Name, tagKey, tagLife))
		}
		at, ok = f.Offset, true
	}
	return at, ok
}

// PastHash returns a function that hashes only the fields of type t with the tag past, including fields of nested
// structs. The values of these fields remain in a slot after the slot's value is gone, and the next value in the slot
// continues from them. The result is nil if t has no field with this tag.
func (w *Walker) PastHash(t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	s := &hashPlan{}
	w.addPast(s, t, 0)
	if len(s.parts) == 0 {
		return nil
	}
	return s.hashValue
}

// addPast appends to s the parts with the tag past within a value of type t at offset at.
func (w *Walker) addPast(s *hashPlan, t reflect.Type, at uintptr) {
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if wordOf(&f) == tagPast {
				w.addParts(s, t, &f, f.Type, at+f.Offset)
			} else if _, ok := w.ruleOf(t, &f, f.Type); !ok {
				w.addPast(s, f.Type, at+f.Offset)
			}
		}
	case reflect.Array:
		for i := range t.Len() {
			w.addPast(s, t.Elem(), at+uintptr(i)*t.Elem().Size())
		}
	default: // Other values are in other memory, which is gone.
	}
}
