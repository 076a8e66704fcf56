//go:build cgo && linux

package nixl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestSecured(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) {
			planetest.RunSecured(t, &planetest.SecuredSuite{Open: maker(c.transports), PushTimes: 64})
		})
	}
}

// The plane keeps the contract over TLS as well, and the deaths of processes prove the same.
func TestContractOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("the contract once more, with processes that are killed and frozen")
	}
	planetest.UseFleet(t)
	t.Run("contract", func(t *testing.T) { planetest.RunLeased(t, maker("")) })
	t.Run("initiator is frozen", TestInitiatorIsFrozen)
	t.Run("initiator is killed", TestInitiatorIsKilled)
	t.Run("target is frozen", TestTargetIsFrozen)
	t.Run("target is killed", TestTargetIsKilled)
}

// A target's guard refuses an initiator that is frozen in the middle of its pushes. The link ends at once. If the initiator
// reaches into our process, the pages stay granted until it has ended its part after the thaw, or has died. In neither case
// is anything stored into the pages once they have another owner.
func TestRefusedInitiatorIsFrozen(t *testing.T) {
	for _, c := range transports {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed=%v", c.name, killed), func(t *testing.T) {
				f := planetest.UseFleet(t)
				b, p, grant := startPushing(t, c.transports)
				p.Freeze()
				f.Revoke(t, 2, 1)
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Link == 0 })
				b.Do(&effects.Revoke{Grant: grant})
				if c.attaches {
					time.Sleep(250 * time.Millisecond) // A false proof would have arrived by then.
					if planetest.CountEvents(b, func(*effects.Revoked) bool { return true }) != 0 {
						t.Fatal("revoked while the peer may reach into this process")
					}
				}
				if killed {
					p.Kill()
				} else if c.attaches {
					p.Resume()
				}
				b.AwaitRevoked(t, grant)
				holds := b.FillOwnPages(t, 0, pages)
				if !killed {
					p.Resume()
					ends := p.read().Codes
					if n := ends[effects.OK.String()] + ends[effects.PeerLost.String()] + ends[effects.Withdrawn.String()]; n != pushes-1 {
						t.Errorf("its pushes ended as %v", ends)
					}
				}
				holds()
			})
		}
	}
}
