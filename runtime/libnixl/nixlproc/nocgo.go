//go:build !cgo || !linux

package nixlproc

// IsChild is false: without cgo on Linux there is no libnixl.
func IsChild() bool { return false }

// Main is never called.
func Main() {}
