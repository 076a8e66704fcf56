// Package sharedlib loads C libraries of vendors while the program runs. The package says where to look for a library,
// resolves functions, and describes what was tried when no library will do. The bindings of AscendCL (runtime/acl),
// HCCL (runtime/hccl/comm) and libnixl (runtime/libnixl) use the package.
//
// A binding tries each candidate until a library has all required functions:
//
//	for _, path := range sharedlib.Search{Variable: "KVFERRY_HCCL", Names: names}.Candidates() {
//		lib, err := sharedlib.Load(path)
//		required, optional := lib.Resolve(table, symbols, nil) // the functions that it lacks
//	}
package sharedlib
