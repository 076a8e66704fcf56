//go:build cgo && linux

package hccl_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// destroys counts the attempts to destroy communicators.
const destroys = "calls.HcclCommDestroy"

// Over RoCE, an initiator that reports its end as gone while its NIC still writes to our pages changes nothing: its
// grants are revoked when our own end is gone, however long that takes, and no write lands afterwards (M4).
func TestGoneIsNotBelievedOverRoCE(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{})
	push := p.NewPush(t, 0, 2)
	r.AddFaults(t, "done:hang=1;destroy:busy=1000000")
	corr := p.A.StartTransfer(push)
	awaitHang(t, r)
	p.A.Plane.(*hccl.Plane).SendGone(p.Link, 1)
	p.B.Do(&effects.Revoke{Grant: push.Grant})
	// Our end is tried to be destroyed, again and again, for several times as long as a word of a peer's that counts
	// takes to do so.
	before := r.ReadStat(t, destroys)
	eventually(t, "our end is tried to be destroyed", func() bool { return r.ReadStat(t, destroys) > before+20 })
	if planetest.CountEvents(p.B, func(e *effects.Revoked) bool { return e.Grant == push.Grant }) != 0 {
		t.Error("revoked by the peer's word, while our end was there")
	}
	r.ClearFaults(t)
	p.B.AwaitRevoked(t, push.Grant)
	holds := p.B.FillOwnPages(t, 0, 2)
	r.RunCommand(t, "release") // Now the write would land.
	p.A.AwaitDone(t, corr)
	holds()
	p.WantWorking(t)
}

// goneMessages are the messages that tell a target that the initiator's end of epoch 1 is gone.
var goneMessages = map[string]func(*net.TCPConn) error{
	"gone":                 func(c *net.TCPConn) error { return sendFrame(c, hccl.EpochFrame("gone", 1)) },
	"the next offer":       func(c *net.TCPConn) error { return sendFrame(c, hccl.EpochFrame("offer", 2)) },
	"the connection's end": func(c *net.TCPConn) error { return c.CloseWrite() },
}

func sendFrame(w io.Writer, frame []byte) error {
	_, err := w.Write(frame)
	return err
}

// This holds for each message, and while our end is still being formed.
func TestNoWordIsBelievedOverRoCE(t *testing.T) {
	for name, word := range goneMessages {
		t.Run(name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			b := planetest.OpenLeased(t, r.NodeMaker(hccltest.Options{Change: shortPrepare}), 2, pages, pageBytes)
			conn, grant := offerEpoch(t, b)
			r.AddFaults(t, "destroy:busy=1000000")
			before := r.ReadStat(t, destroys)
			b.Do(&effects.Revoke{Grant: grant})
			if err := word(conn); err != nil {
				t.Fatal(err)
			}
			eventually(t, "our end is tried to be destroyed", func() bool { return r.ReadStat(t, destroys) > before })
			if planetest.CountEvents(b, func(*effects.Revoked) bool { return true }) != 0 {
				t.Error("revoked by the peer's word, while our end was there")
			}
			r.ClearFaults(t)
			b.AwaitRevoked(t, grant)
		})
	}
}

func shortPrepare(c *hccl.Config) { c.PrepareTimeout = time.Second }

// If our own end cannot be destroyed, the peer's message is the only proof, and counts. In processes of their own,
// because that end stays.
func TestWordWhereOurEndStays(t *testing.T) {
	hccltest.LoadRig(t)
	for name := range goneMessages {
		t.Run(name, func(t *testing.T) {
			if l := startPeer(t, "stays", false, goneMessageVariable+"="+name).readLine(t); !l.Same {
				t.Fatal("see what the child said")
			}
		})
	}
}

// goneMessageVariable says which of the messages a child sends.
const goneMessageVariable = "KVFERRY_HCCL_WORD"

func runStuckTarget(t testing.TB) {
	r := hccltest.LoadRig(t)
	b, err := planetest.NewLeasedNode(t, r.NodeMaker(hccltest.Options{Change: shortPrepare}), 2, pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	conn, grant := offerEpoch(t, b)
	r.AddFaults(t, "call:sym=HcclCommDestroy,nth=*,code=4")
	b.Do(&effects.Revoke{Grant: grant})
	for r.ReadStat(t, destroys) == 0 {
		time.Sleep(time.Millisecond)
	}
	if planetest.CountEvents(b, func(*effects.Revoked) bool { return true }) != 0 {
		t.Fatal("revoked, while our end was there")
	}
	if err := goneMessages[os.Getenv(goneMessageVariable)](conn); err != nil {
		t.Fatal(err)
	}
	b.AwaitRevoked(t, grant)
}
