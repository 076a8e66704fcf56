package snapshot

import (
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

// A Rule is for a type or for one field of a struct.
//
// At is the type's name as package reflect prints it ("timers.Queue"), for a generic
// type without its arguments also ("table.Slab" for each table.Slab[...] that has no
// rule of its own), or the name of a struct type, a dot and the name of a field
// ("sender.put.timer"). A rule for a field goes before the rule for its type.
type Rule struct {
	At   string
	Copy Copying
	Skip bool // not hashed
	// Hash hashes the value at p instead of its structure; nil: by structure.
	Hash func(h *Hasher, p unsafe.Pointer)
	// Compile makes Hash for a type, once.
	Compile func(w *Walker, t reflect.Type) func(h *Hasher, p unsafe.Pointer)
}

// Walker keeps the rules and the plans compiled so far. It is for one goroutine.
type Walker struct {
	rules map[string]Rule
	used  map[string]bool
	plans map[reflect.Type]*plan
	sums  map[reflect.Type]*sum

	memo  map[unsafe.Pointer]unsafe.Pointer // of the clone under way
	arena arena
}

// New returns a walker by these rules.
func New(rules ...Rule) *Walker {
	w := &Walker{
		rules: map[string]Rule{}, used: map[string]bool{},
		plans: map[reflect.Type]*plan{}, sums: map[reflect.Type]*sum{},
		memo: map[unsafe.Pointer]unsafe.Pointer{},
	}
	for _, r := range rules {
		w.rules[r.At] = r
	}
	return w
}

// Unused lists the rules that matched nothing in the trees walked so far.
func (w *Walker) Unused() []string {
	var names []string
	for at := range w.rules {
		if !w.used[at] {
			names = append(names, at)
		}
	}
	slices.Sort(names)
	return names
}

// ruleOf finds the rule for a field of owner (empty: none) of type t.
func (w *Walker) ruleOf(owner reflect.Type, field string, t reflect.Type) (Rule, bool) {
	name := t.String()
	names := [3]string{"", name, ""}
	if owner != nil {
		names[0] = owner.String() + "." + field
	}
	if i := strings.IndexByte(name, '['); i > 0 {
		names[2] = name[:i]
	}
	for _, at := range names {
		if r, ok := w.rules[at]; ok && at != "" {
			w.used[at] = true
			return r, true
		}
	}
	return Rule{}, false
}

// Structure returns what hashes values of type t by their structure, whatever rule there
// is for t itself: for a Compile that only decides when to.
func (w *Walker) Structure(t reflect.Type) func(h *Hasher, p unsafe.Pointer) {
	s := &sum{}
	w.addStructure(s, t, 0)
	return s.add
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
