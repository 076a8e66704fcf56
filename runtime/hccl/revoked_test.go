//go:build cgo && linux

package hccl_test

import (
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// A grant that is revoked while an epoch begins is in the list of revoked grants of that epoch, or the epoch is fenced
// because of the revocation. There is no moment in between at which neither holds (M4).
func TestRevokedWhileAnEpochBegins(t *testing.T) {
	r := hccltest.StartRig(t)
	open := r.NodeMaker(hccltest.Options{HCCS: true})
	a, b := planetest.OpenLeased(t, open, 1, pages, pageBytes), planetest.OpenLeased(t, open, 2, pages, pageBytes)
	grant, _ := b.GrantWrite(a.Inc, 0, 1)
	revoked := func(e *effects.Revoked) bool { return e.Grant == grant }
	var revoking sync.WaitGroup
	early := make(chan bool, 1)
	b.Plane.(*hccl.Plane).BetweenListAndAccept(func() {
		revoking.Go(func() { b.Do(&effects.Revoke{Grant: grant}) })
		time.Sleep(100 * time.Millisecond) // Long enough to be wrong in; being right takes no time.
		early <- planetest.CountEvents(b, revoked) != 0
	})
	a.Import(t, b.Inc, b.Plane.Blob())
	if <-early {
		t.Fatal("revoked, and the epoch that begins was not told of it")
	}
	revoking.Wait()
	b.AwaitRevoked(t, grant)
}
