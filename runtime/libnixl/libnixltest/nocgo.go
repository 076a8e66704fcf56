//go:build !cgo || !linux

// Package libnixltest has helpers for tests over libnixl, all of which need cgo.
package libnixltest
