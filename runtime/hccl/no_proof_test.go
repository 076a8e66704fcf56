//go:build cgo && linux

package hccl_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// If neither the stream can be aborted nor the communicator destroyed, there is no proof (M4): the transfer ends and
// never settles, the link is lost, nothing is revoked, and the memory is not freed. Over HCCS, where copies belong to
// the stream, the proof needs the end of the stream as well as the end of the communicator. The test uses a separate
// process, because the memory stays until the process ends.
func TestNoProof(t *testing.T) {
	hccltest.LoadRig(t)
	for _, c := range links {
		t.Run(c.name, func(t *testing.T) {
			p := startPeer(t, "hopeless", c.hccs)
			if l := p.readLine(t); !l.Same {
				t.Fatal("see what the child said")
			}
		})
	}
}

// If the stream was aborted and the communicator cannot be destroyed, time is the proof: late writes have landed by R,
// and the transfer settles then and not before.
func TestProofByTime(t *testing.T) {
	hccltest.LoadRig(t)
	// R is 2.1 s, of which the landing needs little on any machine.
	p := startPeer(t, "undestroyed", false, "HCCL_RDMA_TIMEOUT=16")
	if l := p.readLine(t); !l.Same {
		t.Fatal("see what the child said")
	}
}

func runUndestroyed(t testing.TB) {
	r, p := openUnclosed(t, hccltest.Options{Change: func(c *hccl.Config) { c.CancelGrace = time.Millisecond }})
	push := p.NewPush(t, 0, 2)
	r.AddFaults(t, "done:hang=1;late:ms=100;call:sym=HcclCommDestroy,nth=*,code=4")
	corr := p.A.StartTransfer(push)
	for r.CountInjected(t) == 0 {
		time.Sleep(time.Millisecond)
	}
	p.A.Do(&effects.Cancel{Corr: corr})
	done := planetest.AwaitEvent(t, p.A, func(e *effects.TransferDone) bool { return e.Corr == corr })
	p.A.AwaitSettled(t, corr)
	own := p.B.PublishFilled(t, 0, 2)
	if done.Code != effects.Cancelled || done.Settled || r.ReadStat(t, "late_landings") != 1 ||
		r.ReadStat(t, "live.late_transfers") != 0 {
		t.Fatalf("ended as %s, settled %v, after %d late landings, with %d to come", done.Code, done.Settled,
			r.ReadStat(t, "late_landings"), r.ReadStat(t, "live.late_transfers"))
	}
	p.B.WantContent(t, own, p.B, own)
}

// openUnclosed opens a pair of nodes that are never closed.
func openUnclosed(t testing.TB, o hccltest.Options) (*hccltest.Rig, *planetest.LeasedPair) {
	r := hccltest.LoadRig(t)
	open := r.NodeMaker(o)
	a, err := planetest.NewLeasedNode(t, open, 1, pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	b, err := planetest.NewLeasedNode(t, open, 2, pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	return r, &planetest.LeasedPair{A: a, B: b, Link: a.Import(t, b.Inc, b.Plane.Blob())}
}

func runWithoutProof(t testing.TB) {
	hccs, stays := os.Getenv(overHCCS) == "true", "call:sym=HcclCommDestroy,nth=*,code=4"
	if hccs {
		stays = "call:sym=aclrtDestroyStream,nth=*,code=507010;call:sym=aclrtDestroyStreamForce,nth=*,code=507010"
	}
	r, p := openUnclosed(t, hccltest.Options{HCCS: hccs})
	a, b := p.A, p.B
	push := p.NewPush(t, 0, pages)
	r.AddFaults(t, "done:fail=1,code=507057;call:sym=aclrtStreamAbort,nth=*,code=507010;"+stays)
	corr := a.StartTransfer(push)
	done := planetest.AwaitEvent(t, a, func(e *effects.TransferDone) bool { return e.Corr == corr })
	planetest.AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == p.Link })
	if done.Code != effects.Faulted || done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	a.DropLink(t, p.Link)
	b.Do(&effects.Revoke{Grant: push.Grant})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := a.Plane.Close(ctx); err == nil || !strings.Contains(err.Error(), "no proof") {
		t.Fatalf("closing the initiator: %v", err)
	}
	// The channel is still open: its end would count as the proof that does not exist.
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := b.Plane.Close(short); err == nil {
		t.Fatalf("the target closed")
	}
	if planetest.CountEvents(a, func(*effects.Settled) bool { return true })+planetest.CountEvents(b,
		func(*effects.Revoked) bool { return true }) != 0 {
		t.Fatal("something is settled or revoked without proof")
	}
}
