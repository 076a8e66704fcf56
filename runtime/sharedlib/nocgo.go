//go:build !cgo || !linux

package sharedlib

import "errors"

// A Library never comes to exist here.
type Library struct{}

// Open fails: without cgo there is no way into a C library.
func Open(string) (*Library, error) {
	return nil, errors.New("this program was built without cgo; rebuild it on linux with CGO_ENABLED=1")
}
