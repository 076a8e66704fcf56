// Package sharedlib loads C libraries of vendors while the program runs. It says where to look for a library, resolves
// its functions, and describes what was tried when no library will do. The bindings of AscendCL (runtime/acl), HCCL
// (runtime/hccl/comm) and libnixl (runtime/libnixl) use it.
//
// A binding tries each candidate until one has all required functions:
//
//	for _, path := range sharedlib.Search{Variable: "KVFERRY_HCCL", Names: names}.Candidates() {
//		lib, err := sharedlib.Open(path)
//		required, optional := lib.Resolve(table, symbols, nil) // the functions that it lacks
//	}
package sharedlib
