// Package doctor looks at a machine with the eyes of a node that is to run there: kernel, limits, memory,
// network, NPUs with their links and copy speeds, and whether one configuration fits. It changes nothing
// that lasts: it makes and drops a small pool, binds the ports of a configuration for a moment, and copies
// between memory of its own.
//
// What is looked at comes from a Machine, so that tests bring machines of their own. Each check is a
// function from there to rows of a Section; only This touches the machine we are on, and only
// look_acl.go an NPU.
package doctor
