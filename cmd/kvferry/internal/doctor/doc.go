// Package doctor checks whether a node can run on a machine. It checks the kernel, limits, memory, network, and the
// NPUs with their links and copy speeds, and whether a configuration fits the machine. The command "kvferry doctor"
// prints its report. Package doctor makes no lasting change: it creates and removes a small pool, binds the ports of a
// configuration for a moment, and copies between buffers of its own.
//
// All checks read a Machine, so that tests can supply a machine of their own. Each check is a function from the Machine
// to the rows of a Section. Only This reads the machine on which the program runs, and only look_acl.go touches an NPU.
//
// For example, This inspects the machine, a check then compares one of the machine's limits with what a node needs, and
// the check's row in the report says whether the limit suffices.
package doctor
