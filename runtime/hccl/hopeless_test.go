//go:build cgo && linux

package hccl_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// Where neither the stream can be aborted nor the communicator destroyed, there is no proof: the transfer ends and never settles, the link is
// lost, nothing is revoked, and the memory is not given back. In a process of its own, because that is what becomes of it.
func TestNoProof(t *testing.T) {
	hccltest.Load(t)
	p := startPeer(t, "hopeless", false)
	if l := p.read(t); !l.Same {
		t.Fatal("see what the child said")
	}
}

func hopeless(t testing.TB) {
	r := hccltest.Load(t)
	open := r.Maker(hccltest.Options{})
	a, err := planetest.NewLeasedNode(t, open, 1, pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	b, err := planetest.NewLeasedNode(t, open, 2, pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	p := &planetest.LeasedPair{A: a, B: b, Link: a.Import(t, b.Inc, b.Plane.Blob())}
	push := p.Push(t, 0, pages)
	r.Fault(t, "done:fail=1,code=507057;call:sym=aclrtStreamAbort,nth=*,code=507010;call:sym=HcclCommDestroy,nth=*,code=4")
	corr := a.Start(push)
	done := planetest.Await(t, a, func(e *effects.TransferDone) bool { return e.Corr == corr })
	planetest.Await(t, a, func(e *effects.LinkLost) bool { return e.Link == p.Link })
	if done.Code != effects.Faulted || done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	a.Drop(t, p.Link)
	b.Do(&effects.Revoke{Grant: push.Grant})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := a.Plane.Close(ctx); err == nil || !strings.Contains(err.Error(), "no proof") {
		t.Fatalf("closing the initiator: %v", err)
	}
	// The channel is as good as open: its end would have been taken for the proof that there is not.
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := b.Plane.Close(short); err == nil {
		t.Fatalf("the target closed")
	}
	if planetest.Has(a, func(*effects.Settled) bool { return true })+planetest.Has(b, func(*effects.Revoked) bool { return true }) != 0 {
		t.Fatal("something is settled or revoked without proof")
	}
}
