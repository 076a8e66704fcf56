//go:build cgo && linux

package nixl_test

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// oneLieIn is how many lies there are for each one that is told. Among those told is a gone frame that is too long,
// after which the end of the connection is the only proof.
const oneLieIn = 23

// Whatever is sent about epochs at any step, to either end, all resources are released.
func TestLies(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			libnixltest.LoadLibrary(t)
			planetest.EachLie(t, liar.LibnixlLies(), oneLieIn, func(t *testing.T, lie liar.Lie) {
				impatient := maker(c.transports, func(c *nixl.Config) {
					c.PrepareTimeout, c.TransferTimeout = 300*time.Millisecond, 300*time.Millisecond
					c.CancelGrace, c.RebuildTries = 50*time.Millisecond, 2
				})
				p := planetest.NewLeasedPair(t, maker(c.transports), pages, 64<<10)
				p.RunLie(t, planetest.OpenLeased(t, impatient.WithShortTimeouts, 3, pages, 64<<10), lie, nixl.Steps, true)
			})
		})
	}
}
