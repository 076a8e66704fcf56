//go:build !cgo

package buildinfo

// Cgo is true if the program was compiled with cgo, which the drivers of NPUs and libnixl need.
const Cgo = false
