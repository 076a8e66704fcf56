// Package fuzz holds the native fuzz targets of everything that reads bytes from outside, with
// their seed corpora in testdata/fuzz. It has no code of its own.
//
// Run one target for a while with
//
//	go test ./fuzz -run '^$' -fuzz '^FuzzAllocRequest$' -fuzztime 30s -fuzzminimizetime 1x
//
// The last flag matters in short runs: without it the fuzzer spends most of them on shortening long
// inputs, and shows 0 executions per second meanwhile.
//
// Plain `go test ./fuzz` runs every seed, and every input that once failed, through its target.
//
// What the targets hold against any bytes: no panic; an error is of the promised type and points
// into the bytes; what is accepted is understood the same way after being encoded again; memory
// stays a small multiple of the input; and, for the hot messages and those about leases, the fields are what msgpack/v5
// reads from the same bytes. That library sees only what our decoders have accepted: on hostile
// bytes it can exhaust memory and stack, which is why it is an oracle here and not a decoder there.
//
// The seeds are written by `go test ./fuzz -run TestSeeds -rewrite-seeds` from the golden vectors of
// package protocol and a list of attacks.
package fuzz
