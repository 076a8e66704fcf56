// Package nixlnode provides a node with libnixl and the data plane over it. The command calls the package only if the
// configuration sets transfer_channel to nixl, so that a machine without libnixl can run every other configuration. In
// a build without cgo, or for another system than Linux, Open fails and says why.
//
// For example, the command calls Open with a configuration and a rank, opens the node with the Options that result, and
// calls Links when a request asks for the node's statistics.
package nixlnode

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// ErrSetting is wrapped by errors that a change of the configuration can fix. All other errors are about the machine.
var ErrSetting = errors.New("wrong setting")

// Load loads the named library, or the library that the search finds if the name is empty. The library stays loaded
// until the process ends. Load fails if the library cannot be loaded.
func Load(library string) (*libnixl.Library, error) {
	l, err := libnixl.Open(libnixl.Options{Library: library})
	if err != nil {
		return nil, needsLibrary(err)
	}
	return l, nil
}

func needsLibrary(err error) error {
	return fmt.Errorf("transfer_channel: nixl needs libnixl: %w or in "+
		"extra_config.kvferry.nixl.library; or set transfer_channel: auto", err)
}
