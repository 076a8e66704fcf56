// Package nixlnode is where a node over libnixl gets what it stands on: the library and the plane over it. The command
// asks for it only where a configuration does, so a machine without libnixl runs everything else; where it was built
// without cgo, Open says so.
package nixlnode

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// ErrSetting is wrapped by errors that a change of the configuration mends; all others are the machine's.
var ErrSetting = errors.New("wrong setting")

// Load loads the library that is named, or else the one that is found. It stays loaded for good.
func Load(library string) (*libnixl.Library, error) {
	l, err := libnixl.Open(libnixl.Options{Library: library})
	if err != nil {
		return nil, fmt.Errorf("transfer_channel is nixl, which needs libnixl: %w or in "+
			"extra_config.kvferry.nixl.library; or set transfer_channel: auto", err)
	}
	return l, nil
}
