// Package fuzz has a fuzz target for every function that reads bytes from outside. Each target has seeds, and checks
// what must hold for any input. The package is made to be imported: docs/fuzzing.md shows a module that fuzzes the
// packages that it embeds.
//
// For any input the targets check: there is no panic; an error has the documented type and points into the bytes; an
// accepted message is decoded to the same values after it was encoded again; memory stays a small multiple of the
// input; and the fields are those that msgpack/v5 reads from the same bytes. That library receives only bytes that our
// decoders have accepted: hostile bytes can make it exhaust memory and stack, which is why the library is an oracle
// here and not a decoder in the nodes.
//
// The seeds are derived when a target starts: from the golden vectors in package protocol/vectors, from the same
// messages in the bytes of another encoder, and from a list of attacks. Inputs that a fuzzer found are listed in
// seeds.go.
package fuzz
