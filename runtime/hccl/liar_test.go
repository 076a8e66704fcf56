//go:build cgo && linux

package hccl_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane"
	lies "github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// liesEach is what part of the lies is told, one in so many; KVFERRY_HOSTILE=1 has all of them told.
const liesEach = 36

// Whatever is said of epochs at whatever step, to either end: a transfer ends, what was revoked is not stored into, the
// link beside it goes on, one to the same peer by which nobody lies works, and all that it took is given back.
func TestLies(t *testing.T) {
	for i, lie := range lies.OfNPUs() {
		if os.Getenv("KVFERRY_HOSTILE") == "" && i%liesEach != 0 {
			continue
		}
		t.Run(string(lie.Step)+" "+string(lie.Way), func(t *testing.T) { tell(t, lie) })
	}
}

func tell(t *testing.T, lie lies.Lie) {
	r := hccltest.Start(t)
	o := hccltest.Options{Change: func(c *hccl.Config) { c.PrepareTimeout, c.RebuildTries = 300*time.Millisecond, 2 }}
	p := faulty(t, r, o)
	a := planetest.OpenLeased(t, func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink,
	) planetest.LeasedEnd {
		end := r.Maker(o)(tb, id, pages, pageBytes, sink)
		open := end.Open
		end.Open = func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			env.Bounds.Handshake, env.Bounds.Stall = 300*time.Millisecond, 300*time.Millisecond
			return open(ctx, env)
		}
		return end
	}, 3, pages, pageBytes)
	l, blob, err := lies.Before(p.B.Plane.Blob(), lie, nil, hccl.Steps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	link := a.TryImport(t, p.B.Inc, blob)
	by := &planetest.LeasedPair{A: a, B: p.B, Link: link.Link}
	if link.Code == effects.OK {
		for range 2 {
			push := by.Push(t, pages/2, 2)
			done := ends(t, a, a.Start(push), l)
			if done.Code == effects.OK {
				by.Arrived(t, push)
			}
			p.B.Revoke(t, push.Grant)
			holds := mine(t, p.B, pages/2, 2)
			beside := p.Push(t, 0, 2)
			p.Ends(t, beside, effects.OK)
			p.Arrived(t, beside)
			holds()
		}
	}
	l.Close()
	goesOn(t, p)
	by.Link = a.Import(t, p.B.Inc, p.B.Plane.Blob())
	goesOn(t, by)
}

// ends waits for the end of a transfer until it is settled, and cancels it where the lie has left it without one.
func ends(t *testing.T, a *planetest.LeasedNode, corr effects.Corr, l *lies.Liar) *effects.TransferDone {
	t.Helper()
	told, late := false, time.Time{}
	for planetest.Has(a, func(e *effects.TransferDone) bool { return e.Corr == corr }) == 0 {
		select {
		case <-l.Lied():
			if !told {
				told, late = true, time.Now().Add(50*time.Millisecond)
			}
		default:
		}
		if told && time.Now().After(late) { // What ends by itself has had its time; which it was decides nothing.
			a.Do(&effects.Cancel{Corr: corr})
			break
		}
		runtime.Gosched()
	}
	return a.Done(t, corr)
}
