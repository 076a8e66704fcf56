//go:build !cgo || !linux

package doctor

import (
	"context"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/libnixl"
)

// inspectNPUs reports that there is no library, because this program was built without cgo.
func inspectNPUs(_ context.Context, l Libraries, _ uint64) NPUs {
	_, err := acl.Open(acl.Options{Library: l.ACL})
	return NPUs{Err: err}
}

// testNIXLWrite reports that there is no library, because this program was built without cgo.
func testNIXLWrite(_ context.Context, o libnixl.Options, _ string, _ uint64) NIXL {
	_, err := libnixl.Open(o)
	return NIXL{Err: err}
}
