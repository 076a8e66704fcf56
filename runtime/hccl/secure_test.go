//go:build cgo && linux

package hccl_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/secure"
)

func TestSecured(t *testing.T) {
	for _, c := range links {
		t.Run(c.name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			planetest.RunSecured(t, &planetest.SecuredSuite{
				Open: r.NodeMaker(hccltest.Options{HCCS: c.hccs}), PushTimes: 1,
				SlowDown: func(t *testing.T) {
					r.AddFaults(t, "done:delay=40000")
					t.Cleanup(func() { r.ClearFaults(t) })
				},
			})
		})
	}
}

// The plane keeps the contract over TLS as well, and the deaths of processes prove the same.
func TestContractOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("the contract once more, with processes that are killed and frozen")
	}
	planetest.UseFleet(t)
	t.Run("contract", TestContract)
	t.Run("initiator is frozen", TestInitiatorIsFrozen)
	t.Run("initiator is killed", TestInitiatorIsKilled)
	t.Run("target is frozen", TestTargetIsFrozen)
	t.Run("target is killed", TestTargetIsKilled)
	t.Run("no proof", TestNoProof)
}

// A target's guard refuses an initiator that is frozen during a push. The link ends at once. Over HCCS the pages stay
// granted while the initiator's process may still store: until it has ended its part after the thaw, or has died. In
// neither case is anything stored into the pages once they have another owner.
func TestRefusedInitiatorIsFrozen(t *testing.T) {
	for _, c := range links {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, killed=%v", c.name, killed), func(t *testing.T) {
				f := planetest.UseFleet(t)
				b, p, grant := startPushing(t, c.hccs, "done:hang=1;late:ms=20")
				p.freezeBetweenWrites(t)
				f.Revoke(t, 2, 1)
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Link == 0 })
				b.Do(&effects.Revoke{Grant: grant})
				if c.hccs {
					wantNotRevoked(t, b)
				}
				if killed {
					p.Kill()
				} else if c.hccs {
					p.Resume()
				}
				b.AwaitRevoked(t, grant)
				holds := b.FillOwnPages(t, 0, pages)
				if !killed {
					p.Resume()
					if end := p.readLine(t); end.Code != effects.PeerLost && end.Code != effects.Withdrawn {
						t.Errorf("its push ended as %s", end.Code)
					}
				}
				holds()
			})
		}
	}
}

// wantNotRevoked fails if a grant of a node is revoked within the time in which a wrong proof would have led to that.
func wantNotRevoked(t *testing.T, n *planetest.LeasedNode) {
	t.Helper()
	time.Sleep(250 * time.Millisecond)
	if planetest.CountEvents(n, func(*effects.Revoked) bool { return true }) != 0 {
		t.Fatal("revoked while the peer may have the memory mapped")
	}
}

// After a target's guard has refused an initiator, only the end of the TCP connection proves over HCCS that the initiator's
// part is over: neither a message, nor an alert of TLS, nor bytes that are no TLS.
func TestOnlyTheEndOfTheConnectionProves(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse bool
		send   func(conn *secure.Conn) error
	}{
		{"gone after the refusal", true, func(conn *secure.Conn) error {
			_, err := conn.Write(hccl.EpochFrame("gone", 1))
			return err
		}},
		{"the next offer after the refusal", true, func(conn *secure.Conn) error {
			_, err := conn.Write(hccl.EpochFrame("offer", 2))
			return err
		}},
		{"an alert about the end", false, func(conn *secure.Conn) error { return conn.Conn.CloseWrite() }},
		{"an alert about the end after the refusal", true, func(conn *secure.Conn) error { return conn.Conn.CloseWrite() }},
		{"no TLS", false, func(conn *secure.Conn) error {
			_, err := secure.Beneath(conn).Write([]byte(strings.Repeat("x", 100)))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			f := planetest.UseFleet(t)
			b := planetest.OpenLeased(t, r.NodeMaker(hccltest.Options{HCCS: true,
				Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }}), 2, pages, pageBytes)
			conn, grant := offerSecuredEpoch(t, f, b)
			if c.refuse {
				f.Revoke(t, 2, 1)
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == lyingPeer })
			}
			b.Do(&effects.Revoke{Grant: grant})
			if err := c.send(conn); err != nil {
				t.Fatal(err)
			}
			if !c.refuse {
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == lyingPeer })
			}
			wantNotRevoked(t, b)
			if c.refuse { // The target ends its direction, so that an honest initiator learns that the link is over.
				if _, err := io.Copy(io.Discard, secure.Beneath(conn)); err != nil {
					t.Errorf("the target did not end its direction: %v", err)
				}
				wantNotRevoked(t, b)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			b.AwaitRevoked(t, grant)
		})
	}
}

// offerSecuredEpoch is offerEpoch with the certificate of node 1.
func offerSecuredEpoch(t *testing.T, f *planetest.Fleet, b *planetest.LeasedNode) (*secure.Conn, effects.GrantID) {
	t.Helper()
	below := dial(t, b)
	t.Cleanup(func() { _ = below.Close() })
	var conn net.Conn
	conn, _, err := f.Guard(t, "spiffe://fleet/both/1").Connect(t.Context(), below, secure.FaceData, effects.AllRoles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*secure.Conn), startEpoch(t, conn, b)
}
