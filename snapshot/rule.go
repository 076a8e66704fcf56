package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// Copying says what a clone does with a value.
type Copying uint8

const (
	// Deep copies all that can be reached.
	Deep Copying = iota
	// Share copies the value alone: what it points to is never changed, or may be common.
	Share
	// Zero leaves the zero value: the owner makes it anew when it needs it.
	Zero
)

// A Rule is for a type, or for the fields that have a word of the owner's as their tag:
// either Type or Word says which. A field's word goes before the rule for its type.
type Rule struct {
	// Type is the type.
	Type reflect.Type
	// Generic says that the rule is for each instantiation of the generic type of which
	// Type is one, if it has no rule of its own.
	Generic bool
	// Word is what stands in the tag of fields: `snap:"word"`. It is none of the words
	// that the walker knows by itself.
	Word string
	// Are are what values of an interface Type can be: pointers, of which each clone has its own copy. An interface
	// without them cannot be cloned.
	Are []reflect.Type
	// Over says that the word is for fields of types whose rules do not hold there; for
	// [Walker.Check], which refuses other words there.
	Over bool

	Copy Copying
	Skip bool // not hashed
	// Hash hashes the value at p instead of its structure; nil: by structure.
	Hash func(h *Hasher, p unsafe.Pointer)
	// Compile makes Hash for a type, once.
	Compile func(w *Walker, t reflect.Type) func(h *Hasher, p unsafe.Pointer)
}

// name is the rule in words.
func (r *Rule) name() string {
	switch {
	case r.Word != "":
		return tagKey + `:"` + r.Word + `"`
	case r.Generic:
		return generic(r.Type)
	default:
		return r.Type.String()
	}
}

// Walker keeps the rules and the plans compiled so far. It is for one goroutine.
type Walker struct {
	types    map[reflect.Type]*Rule
	generics map[string]*Rule // by the name of the generic type
	words    map[string]*Rule
	unused   map[*Rule]bool
	plans    map[reflect.Type]*plan
	sums     map[reflect.Type]*sum

	memo  map[unsafe.Pointer]unsafe.Pointer // of the clone under way
	arena arena

	over  bool    // the clone under way is one over another
	under arena   // of those
	lent  []*made // by the clone before
}

// New returns a walker by these rules.
func New(rules ...Rule) *Walker {
	w := &Walker{
		types: map[reflect.Type]*Rule{}, generics: map[string]*Rule{}, words: map[string]*Rule{}, unused: map[*Rule]bool{},
		plans: map[reflect.Type]*plan{}, sums: map[reflect.Type]*sum{}, memo: map[unsafe.Pointer]unsafe.Pointer{},
	}
	for _, r := range rules {
		w.unused[&r] = true
		switch {
		case known(r.Word):
			panic(fmt.Sprintf("BUG: a rule for the word %q, which the walker has a meaning for", r.Word))
		case r.Word != "":
			w.words[r.Word] = &r
		case r.Generic:
			w.generics[generic(r.Type)] = &r
		default:
			w.types[r.Type] = &r
		}
	}
	if len(w.words)+len(w.generics)+len(w.types) != len(rules) {
		panic("BUG: two rules for the same")
	}
	return w
}

// Unused lists the rules that matched nothing in the trees walked so far.
func (w *Walker) Unused() []string {
	var names []string
	for r := range w.unused {
		names = append(names, r.name())
	}
	slices.Sort(names)
	return names
}

// generic is the name of a generic type without the arguments of t, with its whole path.
func generic(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return t.PkgPath() + "." + name
}

// ruleOf finds what is to be done with a value of type t. Field is what it is of owner;
// both are nil for what is no field.
func (w *Walker) ruleOf(owner reflect.Type, field *reflect.StructField, t reflect.Type) (Rule, bool) {
	if field != nil {
		switch word := wordOf(field); word {
		case "", tagPast, tagLife, tagBeside:
		case tagScratch:
			return Rule{Copy: Zero}, true
		case tagShare:
			return Rule{Copy: Share}, true
		case tagSkip:
			r, _ := w.take(w.find(t))
			return Rule{Copy: r.Copy, Skip: true}, true
		case tagSet:
			return Rule{Compile: compileSet}, true
		default:
			r, ok := w.take(w.words[word])
			if !ok {
				panic(fmt.Sprintf("BUG: %s.%s has the tag %s:%q, for which there is no rule", owner, field.Name, tagKey, word))
			}
			return r, true
		}
	}
	return w.take(w.find(t))
}

// find returns the rule for t, or nil.
func (w *Walker) find(t reflect.Type) *Rule {
	if r := w.types[t]; r != nil {
		return r
	}
	if !strings.Contains(t.Name(), "[") {
		return nil
	}
	return w.generics[generic(t)]
}

// take notes that r is of use.
func (w *Walker) take(r *Rule) (Rule, bool) {
	if r == nil {
		return Rule{}, false
	}
	delete(w.unused, r)
	return *r, true
}

// Structure returns what hashes values of type t by their structure, whatever rule there
// is for t itself: for a Compile that only decides when to.
func (w *Walker) Structure(t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	s := &sum{}
	w.addStructure(s, t, 0)
	return s.add
}

// OffsetOf is where the field of type T with this name lies in struct type t.
func OffsetOf[T any](t reflect.Type, path string) uintptr {
	at, is := Offset(t, path)
	if want := reflect.TypeFor[T](); is != want {
		panic(fmt.Sprintf("BUG: %s.%s is a %s now and was a %s: adapt the rule that reads it", t, path, is, want))
	}
	return at
}

// Offset is where a field of struct type t lies, and its type. Embedded paths are
// written with dots.
func Offset(t reflect.Type, path string) (uintptr, reflect.Type) {
	at := uintptr(0)
	for _, name := range strings.Split(path, ".") {
		f, ok := t.FieldByName(name)
		if !ok {
			panic("BUG: " + t.String() + " has no field " + name + " any more: adapt the rule that reads it")
		}
		at, t = at+f.Offset, f.Type
	}
	return at, t
}
