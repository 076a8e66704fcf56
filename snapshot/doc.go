// Package snapshot copies, hashes and tells state that is a plain tree: structs, arrays, slices,
// strings, maps with few entries, and pointers that may meet again. Nothing that is
// copied needs a method for it; what the types say is compiled once into plans.
//
//	w := snapshot.New(rules...)
//	copy := snapshot.Clone(w, &state)      // shares nothing that can change
//	h := snapshot.Hash(w, &state)          // equal states give equal numbers
//	b := snapshot.Tell(&state, telling)    // JSON for a person; works on any state, needs no rules
//
// Most of what is not a plain value says so itself, in a tag of its field, so that it
// moves with the field, and so do fields of embedded structs:
//
//	`snap:"scratch"`  of use within one step only: zero in a clone, not hashed
//	`snap:"share"`    never changes, or is common to all: shared by clones, not hashed
//	`snap:"skip"`     decides nothing, or follows from the rest: cloned, not hashed
//	`snap:"set"`      a number that names what is hashed elsewhere: hashed only as zero or not
//	`snap:"past"`     what the next life of a slot goes on from ([Walker.Past]); else as without
//	`snap:"life"`     a bool: without it nothing else of its struct is hashed
//	`snap:"beside"`   slices: told are the elements beside which, in the first slices of the field before, one lives
//
// A [Rule] is for a type, or gives a further word its meaning: instants that count from
// now, names that stand for something else. A rule that matched nothing is reported by
// [Walker.Unused], and tags that are wrong by [Walker.Check], so that no change of a type
// can silently change what is hashed.
package snapshot
