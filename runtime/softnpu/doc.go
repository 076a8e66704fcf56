// Package softnpu is the software NPU: a C library of ours with the symbols of AscendCL and of HCCL's
// one-sided half, for machines and tests that have no NPU. A program selects it like the real one, by library path, and
// cannot tell the difference. docs/softnpu.md says what it does, how to break it on purpose and what it reports.
//
// The library is C in src, without any dependency but libc and threads; check has the programs that hold it
// to the specification. This package only builds them; nothing here is linked into kvferry.
package softnpu
