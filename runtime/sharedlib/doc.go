// Package sharedlib loads C libraries of vendors while the program runs: where to look for them, which of their
// functions are there, and what to say when none will do. The bindings of AscendCL,
// HCCL and libnixl stand on it.
package sharedlib
