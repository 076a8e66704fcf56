package snapshot

import (
	"fmt"
	"reflect"
	"unsafe"
)

// tagKey is the key of the tags that the walker reads: `snap:"word"`, one word a field.
const tagKey = "snap"

// Words that the walker knows. All others are rules' words.
const (
	tagScratch = "scratch" // of use within one step only: zero in a clone, not hashed
	tagShare   = "share"   // never changes, or is common to all: shared by clones, not hashed
	tagSkip    = "skip"    // decides nothing: cloned, not hashed
	tagSet     = "set"     // a number that is hashed only as zero or not
	tagPast    = "past"    // what the next life of a slot goes on from: see Walker.Past
	tagLife    = "life"    // a flag without which nothing of its struct is hashed
	tagBeside  = "beside"  // of slices: told are the elements beside which, in the field before, one lives
)

func wordOf(f *reflect.StructField) string { return f.Tag.Get(tagKey) }

// known says whether the walker has a meaning for word.
func known(word string) bool {
	switch word {
	case tagScratch, tagShare, tagSkip, tagSet, tagPast, tagLife, tagBeside:
		return true
	default:
		return false
	}
}

// numbers says whether values of t are whole numbers.
func numbers(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr }

// compileSet hashes of a number whether it is zero.
func compileSet(_ *Walker, t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	if !numbers(t) {
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

// lifeOf finds the flag of struct type t without which nothing of it is hashed.
func lifeOf(t reflect.Type) (at uintptr, ok bool) {
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

// Past returns what hashes of a value of type t only the fields with the tag past, those
// of structs in it included: what is left of a slot whose value is gone, and what its
// next life goes on from. It is nil if t has none.
func (w *Walker) Past(t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	s := &sum{}
	w.addPast(s, t, 0)
	if len(s.parts) == 0 {
		return nil
	}
	return s.add
}

func (w *Walker) addPast(s *sum, t reflect.Type, at uintptr) {
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
	default: // What lies elsewhere is gone.
	}
}
