package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// CopyMode says what a clone does with a value.
type CopyMode uint8

const (
	// Deep copies everything that can be reached.
	Deep CopyMode = iota
	// Share copies only the value: the memory to which the value points never changes, or may be common.
	Share
	// Zero leaves the zero value: the owner creates the value anew when the value is needed.
	Zero
)

// A Rule applies to a type, or to the fields that have a given word as their tag: either Type or Word says which. The
// word of a field takes precedence over the rule for the field's type.
type Rule struct {
	// Type is the type.
	Type reflect.Type
	// Generic says that the rule is for each instantiation of the generic type of which Type is an instance, unless an
	// instantiation has a rule of its own.
	Generic bool
	// Word is the text in the tag of fields: `snap:"word"`. The words that the walker has a meaning for are not
	// allowed.
	Word string
	// Implementations lists the types that values of an interface can have. The types are pointers, and each clone has
	// a copy of the value. An interface without this list cannot be cloned; one with an empty list must be nil.
	Implementations []reflect.Type
	// OverridesType says that the word is for fields of types with rules, and that these rules do not apply to the
	// fields. [Walker.CheckTags] refuses any other word on a field of a type with a rule.
	OverridesType bool

	Copy CopyMode
	Skip bool // not hashed
	// Hash hashes the value at p instead of its structure; nil: the structure is hashed.
	Hash func(h *Hasher, p unsafe.Pointer)
	// Compile creates Hash for a type, once.
	Compile func(w *Walker, t reflect.Type) func(h *Hasher, p unsafe.Pointer)
}

// label returns a text that identifies the rule.
func (r *Rule) label() string {
	switch {
	case r.Word != "":
		return tagKey + `:"` + r.Word + `"`
	case r.Generic:
		return genericName(r.Type)
	default:
		return r.Type.String()
	}
}

// Walker keeps the rules and the plans that were compiled so far. A Walker is for a single goroutine.
type Walker struct {
	types      map[reflect.Type]*Rule
	generics   map[string]*Rule // by the name of the generic type
	words      map[string]*Rule
	unused     map[*Rule]bool
	clonePlans map[reflect.Type]*clonePlan
	hashPlans  map[reflect.Type]*hashPlan
	codePlans  map[codePlanKey]*codePlan
	codeMemo   map[codeTarget]uint64 // reused by Encode

	memo  map[unsafe.Pointer]unsafe.Pointer // copies of pointers in the present clone
	arena arena

	reusing    bool            // the present clone is made by CloneInto
	spareArena arena           // the arena of CloneInto
	usedFields []*reusedSlices // the fields with slices that the preceding CloneInto used
}

// New returns a walker with these rules, and panics if two rules are for the same type or word.
func New(rules ...Rule) *Walker {
	w := &Walker{
		types: map[reflect.Type]*Rule{}, generics: map[string]*Rule{}, words: map[string]*Rule{}, unused: map[*Rule]bool{},
		clonePlans: map[reflect.Type]*clonePlan{}, hashPlans: map[reflect.Type]*hashPlan{}, memo: map[unsafe.Pointer]unsafe.Pointer{},
	}
	for _, r := range rules {
		w.unused[&r] = true
		switch {
		case isKnownWord(r.Word):
			panic(fmt.Sprintf("BUG: a rule for the word %q, which the walker has a meaning for", r.Word))
		case r.Word != "":
			w.words[r.Word] = &r
		case r.Generic:
			w.generics[genericName(r.Type)] = &r
		default:
			w.types[r.Type] = &r
		}
	}
	if len(w.words)+len(w.generics)+len(w.types) != len(rules) {
		panic("BUG: two rules for the same")
	}
	return w
}

// UnusedRules returns the rules that matched nothing in the trees walked so far.
func (w *Walker) UnusedRules() []string {
	var names []string
	for r := range w.unused {
		names = append(names, r.label())
	}
	slices.Sort(names)
	return names
}

// genericName returns the name of the generic type of t without type arguments, with its full import path.
func genericName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return t.PkgPath() + "." + name
}

// ruleOf returns the rule for a value of type t. field is the field of owner that holds the value; both are nil if the
// value is not a field.
func (w *Walker) ruleOf(owner reflect.Type, field *reflect.StructField, t reflect.Type) (Rule, bool) {
	if field != nil {
		switch word := wordOf(field); word {
		case "", tagPast, tagLife, tagBeside:
		case tagScratch:
			return Rule{Copy: Zero}, true
		case tagShare:
			return Rule{Copy: Share}, true
		case tagSkip:
			r, _ := w.useRule(w.findRule(t))
			return Rule{Copy: r.Copy, Skip: true}, true
		case tagSet:
			return Rule{Compile: compileSet}, true
		default:
			r, ok := w.useRule(w.words[word])
			if !ok {
				panic(fmt.Sprintf("BUG: %s.%s has the tag %s:%q, for which there is no rule", owner, field.Name, tagKey, word))
			}
			return r, true
		}
	}
	return w.useRule(w.findRule(t))
}

// findRule returns the rule for t, or nil.
func (w *Walker) findRule(t reflect.Type) *Rule {
	if r := w.types[t]; r != nil {
		return r
	}
	if !strings.Contains(t.Name(), "[") {
		return nil
	}
	return w.generics[genericName(t)]
}

// useRule marks r as used.
func (w *Walker) useRule(r *Rule) (Rule, bool) {
	if r == nil {
		return Rule{}, false
	}
	delete(w.unused, r)
	return *r, true
}

// StructureHash returns a function that hashes values of type t by their structure, whatever rule there is for t
// itself. It is for a Compile function that only decides when to hash.
func (w *Walker) StructureHash(t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	s := &hashPlan{}
	w.addStructure(s, t, 0)
	return s.hashValue
}

// OffsetOf returns the offset of a field of type T in struct type t, and panics if the field has another type.
func OffsetOf[T any](t reflect.Type, path string) uintptr {
	at, actual := Offset(t, path)
	if want := reflect.TypeFor[T](); actual != want {
		panic(fmt.Sprintf("BUG: %s.%s is a %s now and was a %s: adapt the rule that reads it", t, path, actual, want))
	}
	return at
}

// Offset returns the offset and the type of a field in struct type t. Paths through nested structs are written with
// dots. Offset panics if there is no such field.
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
