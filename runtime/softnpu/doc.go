// Package softnpu is the software NPU: a C library with the symbols of AscendCL and of the one-sided half of HCCL, for
// machines and tests that have no NPU. A program selects it by library path, like the real one, and cannot tell the
// difference. docs/softnpu.md says what it does, how to inject faults and what it reports.
//
// The library is C code in src, with no dependency but libc and threads; check has the programs that test it against
// the specification. This package only builds them; nothing here is linked into kvferry.
//
//	path, err := softnpu.Variant{}.Library() // builds it if it is not up to date
//	lib, err := acl.Open(acl.Options{Library: path})
package softnpu
