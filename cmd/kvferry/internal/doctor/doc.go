// Package doctor checks whether a node can run on a machine. It checks the kernel, limits, memory, network, and the
// NPUs with their links and copy speeds, and whether a configuration fits the machine. The command "kvferry doctor"
// prints the report. Package doctor makes no lasting change: it creates and removes a small pool, binds the ports of a
// configuration for a moment, and copies between buffers that it allocates.
//
// All checks read a Machine, so that tests can supply the files and the answers of any machine. Each check is a
// function from the Machine to the rows of a Section. Only LocalMachine reads the machine on which the program runs,
// and only inspect_acl.go uses an NPU.
//
// For example, checkLimits compares the limit of open files with the number of files that a node needs, and adds a row
// that says whether the limit suffices.
package doctor
