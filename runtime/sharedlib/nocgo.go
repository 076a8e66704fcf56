//go:build !cgo || !linux

package sharedlib

import "errors"

// A Library never exists in this build.
type Library struct{}

// Load fails: without cgo no C library can be called.
func Load(string) (*Library, error) {
	return nil, errors.New("this program was built without cgo; rebuild it on linux with CGO_ENABLED=1")
}
