// Package fuzz holds a fuzz target for everything that reads bytes from outside, with its seeds and with what must
// hold of it. It is made to be imported: docs/fuzzing.md shows a module that fuzzes what it embeds.
//
// What the targets hold against any bytes: no panic; an error is of the promised type and points
// into the bytes; what is accepted is understood the same way after being encoded again; memory
// stays a small multiple of the input; and, for the hot messages and those about leases, the fields are what msgpack/v5
// reads from the same bytes. That library sees only what our decoders have accepted: on hostile
// bytes it can exhaust memory and stack, which is why it is an oracle here and not a decoder there.
//
// The seeds are derived when a target starts: from the golden vectors in package protocol/vectors, from the same
// messages as another encoder writes them, and from a list of attacks. Inputs that a fuzzer found are listed in seeds.go.
package fuzz
