//go:build !cgo || !linux

package acl

import "github.com/kvferry/kvferry/runtime/sharedlib"

// Without cgo no C library can be called: Open returns an error, and a Library never exists.

// A Library is AscendCL, loaded and initialized.
type Library struct{}

// Open returns a *LoadError: this program was built without cgo, or for a system without CANN.
func Open(o Options) (*Library, error) {
	e := &LoadError{}
	for _, name := range o.candidateLibraries() {
		_, err := sharedlib.Load(name)
		e.Attempts = append(e.Attempts, Attempt{Library: name, Reason: err.Error()})
	}
	return nil, e
}

// Info is empty.
func (*Library) Info() Info { return Info{} }

// Close does nothing.
func (*Library) Close() error { return nil }
