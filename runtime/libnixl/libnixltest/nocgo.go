//go:build !cgo || !linux

// Package libnixltest has what tests over libnixl start from, which needs cgo.
package libnixltest
