// Package softnpu is the software NPU: a C library with the symbols of AscendCL and of the one-sided half of HCCL, for
// machines and tests that have no NPU. A program selects the software NPU by library path, like the real library, and
// cannot tell the difference. docs/softnpu.md describes the behavior, the faults that can be injected, and the reports.
//
// The library is C code in src, with no dependency but libc and threads. The folder check has the programs that test
// the library against the specification. This package only builds the library and the programs; nothing here is linked
// into kvferry.
//
//	path, err := softnpu.Variant{}.BuildLibrary() // builds it if it is not up to date
//	lib, err := acl.Open(acl.Options{Library: path})
package softnpu
