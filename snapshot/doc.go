// Package snapshot copies and hashes state that is a plain tree: structs, arrays, slices,
// strings, maps with few entries, and pointers that may meet again. Nothing that is
// copied needs a method for it; what the types say is compiled once into plans.
//
//	w := snapshot.New(rules...)
//	copy := snapshot.Clone(w, &state)      // shares nothing that can change
//	h := snapshot.Hash(w, &state)          // equal states give equal numbers
//
// Rules name what is not a plain value: memory that is only of use within one step,
// caches that may be shared, instants that count from now, names that stand for
// something else. A rule that matches no type of the tree is reported by
// [Walker.Unused], so that renaming a field cannot silently change what is hashed.
package snapshot
