//go:build !cgo || !linux

package libnixl

import "github.com/kvferry/kvferry/runtime/sharedlib"

// A Library never exists in this build, because without cgo no C library can be called.
type Library struct{}

// Open returns a *LoadError: this program was built without cgo, or for a system without libnixl.
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
