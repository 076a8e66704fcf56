package snapshot

import (
	"fmt"
	"iter"
	"reflect"
	"strings"
)

// Fields returns the fields of all structs that a walk from a value of type root reaches, each with the struct type
// that contains it. The walk does not go behind fields that clones share or that are zero in clones, or behind types
// with a rule that says so.
func (w *Walker) Fields(root reflect.Type) iter.Seq2[reflect.Type, reflect.StructField] {
	return func(yield func(reflect.Type, reflect.StructField) bool) {
		seen := map[reflect.Type]bool{}
		var walk func(t reflect.Type) bool
		walk = func(t reflect.Type) bool {
			if seen[t] || !w.isOwned(t) {
				return true
			}
			seen[t] = true
			//exhaustive:ignore
			switch t.Kind() {
			case reflect.Struct:
				for i := range t.NumField() {
					f := t.Field(i)
					if !yield(t, f) || !w.isOutside(&f) && !walk(f.Type) {
						return false
					}
				}
			case reflect.Map:
				return walk(t.Key()) && walk(t.Elem())
			case reflect.Array, reflect.Slice, reflect.Pointer:
				return walk(t.Elem())
			case reflect.Interface:
				for _, impl := range w.implementationsOf(t) {
					if !walk(impl) {
						return false
					}
				}
			default:
			}
			return true
		}
		walk(root)
	}
}

// implementationsOf returns the types that values of an interface can have, according to its rule.
func (w *Walker) implementationsOf(t reflect.Type) []reflect.Type {
	if r := w.findRule(t); r != nil {
		return r.Implementations
	}
	return nil
}

// isOutside reports whether what f reaches is not part of the tree.
func (w *Walker) isOutside(f *reflect.StructField) bool {
	word := wordOf(f)
	r := w.words[word]
	return word == tagShare || word == tagScratch || r != nil && r.Copy != Deep
}

// isOwned reports whether each clone has a copy of values of type t.
func (w *Walker) isOwned(t reflect.Type) bool {
	r := w.findRule(t)
	return r == nil || r.Copy == Deep
}

// CheckTags returns the errors in the tags of everything that a walk from root reaches: unknown words, words that say
// how to hash a value although a rule for the type says so as well, and values that clones cannot copy. Check is for a
// test of the package that owns the types.
func (w *Walker) CheckTags(root reflect.Type) []string {
	var faults []string
	lives := map[reflect.Type]int{}
	for owner, f := range w.Fields(root) {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("%s.%s: ", owner, f.Name)+fmt.Sprintf(format, args...))
		}
		word := wordOf(&f)
		own, rule := w.words[word], w.findRule(f.Type)
		switch {
		case word == "" && strings.Contains(string(f.Tag), tagKey):
			fault("the tag %q is none: write %s:\"word\"", f.Tag, tagKey)
		case word != "" && !isKnownWord(word) && own == nil:
			fault("nobody knows the word %q: give it a rule, or take one of the package's", word)
		case rule != nil && (word == tagSet || own != nil && own.Copy == Deep && !own.OverridesType):
			fault("the word %q and the rule for %s both say how it is hashed: drop one", word, rule.label())
		case (word == tagSet || word == tagPast) && !isInteger(f.Type):
			fault("the word %q is for numbers, and this is of type %s", word, f.Type)
		case word == tagLife && f.Type.Kind() != reflect.Bool:
			fault("the word %q is for a bool, and this is of type %s", word, f.Type)
		}
		if word == tagLife {
			if lives[owner]++; lives[owner] > 1 {
				fault("a second %q in one struct: one flag decides", word)
			}
		}
		if bad, ok := w.findUnclonable(f.Type); ok && !w.isOutside(&f) {
			fault("no clone can have a %s to itself: tag it %q if it never changes, or %q", bad, tagShare, tagScratch)
		}
	}
	return faults
}

// findUnclonable returns the first type within t, structs excepted, of which no clone can have its own value.
func (w *Walker) findUnclonable(t reflect.Type) (reflect.Type, bool) {
	for {
		if !w.isOwned(t) {
			return nil, false
		}
		//exhaustive:ignore
		switch t.Kind() {
		case reflect.Func, reflect.Chan, reflect.UnsafePointer:
			return t, true
		case reflect.Interface:
			return t, w.implementationsOf(t) == nil
		case reflect.Array, reflect.Slice, reflect.Pointer, reflect.Map:
			t = t.Elem()
		default:
			return nil, false
		}
	}
}
