// Package snapshot copies, hashes, encodes and describes the state of a machine. The state must be a plain tree: structs,
// arrays, slices, strings, maps with few entries, and pointers, several of which may point to the same value. A type
// needs no method for this: the structure of the type is compiled once into a plan.
//
//	w := snapshot.New(rules...)
//	copy := snapshot.Clone(w, &state)       // shares nothing that can change
//	h := snapshot.Hash(w, &state)           // equal states have equal hashes
//	b := snapshot.Encode(w, nil, &state)    // bytes from which Decode makes an equal state
//	b := snapshot.Describe(&state, options) // JSON for a person; works on any state, needs no rules
//
// The simulator branches from clones of a state and recognizes visited states by their hashes, and the report of a
// failed rank describes the state of its machine. Example: the simulator clones a machine, steps the clone with an
// event, and hashes the result; if the hash is known, the simulator does not explore that state again. The flight
// recorder of a node encodes the state of the node's machine, so that a replay can begin in the middle of a long run.
//
// A field that is more than a plain value usually says so in its tag, so that the treatment moves with the field. This
// holds for fields of embedded structs too:
//
//	`snap:"scratch"`  of use within one step only: zero in a clone, not hashed, not encoded
//	`snap:"share"`    never changes, or is common to all: shared by clones, not hashed; encoded only behind a slice, a
//	                  pointer or a map
//	`snap:"skip"`     decides nothing, or follows from the rest: cloned, encoded, not hashed
//	`snap:"set"`      a number that names what is hashed elsewhere: hashed only as zero or not zero
//	`snap:"past"`     what the next value in a slot continues from ([Walker.PastHash]); otherwise as without a tag
//	`snap:"life"`     a bool: while the bool is false, nothing else of the struct is hashed
//	`snap:"beside"`   slices: an element is described only if the corresponding element of the first slice of the
//	                  preceding field is in use
//
// A [Rule] applies to a type, or gives another word its meaning, for example for instants that count from now, or for
// names that stand for something else. [Walker.UnusedRules] reports the rules that matched nothing, and
// [Walker.CheckTags] reports wrong tags, so that no change of a type can silently change what is hashed.
package snapshot
