//go:build cgo && linux

package comm

import (
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// The destruction of a busy communicator is repeated; a communicator that stays busy is left unchanged and may be
// closed later.
func TestCloseOfABusyCommunicator(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(newRig(t, hidden...), 0)
			o := commOptions(t, RoCE, 0, "busy")
			if err := e.openComm(o); err != nil {
				t.Fatal(err)
			}
			e.addFaults("destroy:busy=3")
			if err := e.closeComm(); err != nil {
				t.Errorf("after three refusals: %v", err)
			}
			if n := e.readStat("calls.HcclCommDestroy"); n != 4 {
				t.Errorf("destroyed %d times, want 4", n)
			}
			e.runCommand("clear")
			e.addFaults("destroy:busy=1000000")
			o.Name, o.CloseTimeout = "busier", time.Millisecond
			if err := e.openComm(o); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, e.closeComm(), ErrBusy, "busier")
			mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
				wantRefusal(t, e.comm.Bind(at, e.regions...), ErrFenced, "busier")
				wantRefusal(t, e.comm.Prepare(at, time.Second, 2), ErrFenced, "busier")
				// Unbound, and still in the hands of what could not be destroyed.
				wantRefusal(t, e.regions[0].Close(at), ErrBusy, "bound to 1 communicators")
				return nil
			})
			e.runCommand("clear")
			for range 2 {
				if err := e.closeComm(); err != nil {
					t.Errorf("closing again: %v", err)
				}
			}
			mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
				wantRefusal(t, e.comm.Bind(at, e.regions...), ErrClosed, "busier")
				wantRefusal(t, e.comm.AsyncError(at), ErrClosed, "busier")
				return nil
			})
		})
	}
}

// A region that cannot be unbound keeps the communicator from being destroyed, which would fail half way.
func TestCloseUnbindsFirst(t *testing.T) {
	e := newEndpoint(newRig(t), 0)
	if err := e.openComm(commOptions(t, RoCE, 0, "bound")); err != nil {
		t.Fatal(err)
	}
	e.addFaults("call:sym=HcclCommUnbindMem,nth=2,count=1,code=8")
	wantCode(t, e.closeComm(), 8, "HcclCommUnbindMem")
	if n := e.readStat("calls.HcclCommDestroy"); n != 0 {
		t.Errorf("destroyed %d times with a region bound", n)
	}
	if err := e.closeComm(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if n := e.readStat("calls.HcclCommUnbindMem"); n != 3 {
		t.Errorf("%d times unbound, want 3: two regions, and one of them twice", n)
	}
}

// A failed destruction is never repeated. The test uses a separate process, because the communicator stays.
func TestDestroyThatFailsIsNotRepeated(t *testing.T) {
	if !runInOwnProcess(t) {
		return
	}
	for name, hidden := range librariesBySequence {
		r := newRigWithoutBindings(t)
		r.openLibraries(hidden)
		e := newEndpoint(r, 0)
		if err := e.openComm(commOptions(t, RoCE, 0, "lost "+name)); err != nil {
			t.Fatal(err)
		}
		before := r.readStat("calls.HcclCommDestroy")
		r.addFaults("call:sym=HcclCommDestroy,nth=1,code=8")
		err := e.closeComm()
		wantRefusal(t, err, ErrLost, "lost")
		wantCode(t, err, 8, "HcclCommDestroy")
		wantRefusal(t, e.closeComm(), ErrLost, "an earlier call failed")
		if n := r.readStat("calls.HcclCommDestroy") - before; n != 1 {
			t.Errorf("%s: destroyed %d times, want once", name, n)
		}
		// The bound regions can be closed, which removes the memory from the NIC.
		mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error { return errors.Join(e.regions[0].Close(at), e.regions[1].Close(at)) })
		if err := r.lib.Close(); err != nil {
			t.Error(err)
		}
	}
}

// signalingSequence reports that preparing has begun.
type signalingSequence struct {
	regionSequence
	begun chan struct{}
}

func (s signalingSequence) prepareComm(c *Comm, at acl.CurrentThread, seconds, peerRegions int) error {
	close(s.begun)
	return s.regionSequence.prepareComm(c, at, seconds, peerRegions)
}

// Nothing is destroyed during a call that waits for the peer.
func TestCloseWhilePreparing(t *testing.T) {
	r := newRig(t)
	ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
	near := ends[0]
	for i, e := range ends {
		if err := e.openComm(commOptions(t, RoCE, uint32(i), "waits")); err != nil {
			t.Fatal(err)
		}
	}
	prepared, begun := make(chan error, 1), make(chan struct{})
	near.comm.sequence = signalingSequence{near.comm.sequence, begun}
	go func() { prepared <- near.prepareComm() }()
	<-begun
	wantRefusal(t, near.closeComm(), ErrBusy, "another thread")
	wantRefusal(t, near.prepareComm(), ErrBusy, "another thread")
	wantRefusal(t, near.putBatch(Desc{near.device.Address(), 64, 64}), ErrBusy, "another thread")
	if err := errors.Join(ends[1].prepareComm(), <-prepared); err != nil {
		t.Error(err)
	}
	for _, e := range ends {
		if err := e.closeComm(); err != nil {
			t.Error(err)
		}
	}
}

// Requests that an abort leaves behind could land with a later batch: no batch is accepted after an abort, on any
// stream.
func TestNothingFollowsAnAbort(t *testing.T) {
	ends := newPairInProcess(t, RoCE)
	e := ends[0]
	d := Desc{e.device.Address(), e.peer.Device, mib}
	e.addFaults("done:hang=1")
	outcome := make(chan error, 1)
	e.mustDo(func(t *acl.Thread) error {
		return errors.Join(e.comm.Put(t, e.stream, []Desc{d}), e.stream.Notify(t, func(err error) { outcome <- err }))
	})
	e.mustDo(e.stream.Abort)
	if err := <-outcome; !errors.Is(err, acl.Cancelled) {
		t.Errorf("the aborted batch ended as %v", err)
	}
	wantRefusal(t, e.putBatch(d), acl.Cancelled, "aborted")
	var other *acl.Stream
	e.mustDo(func(t *acl.Thread) (err error) { other, err = t.NewStream(acl.StreamOptions{}); return err })
	e.deferClose(func(t *acl.Thread) error { return other.Close(t) })
	e.mustDo(func(at *acl.Thread) error {
		wantRefusal(t, e.comm.Put(at, other, []Desc{d}), ErrInvalid, "another stream")
		return nil
	})
	e.runCommand("clear") // where the abort came before the batch could hang
	// A second communicator may use the second stream.
	if err := errors.Join(e.closeComm(), ends[1].closeComm()); err != nil {
		t.Fatal(err)
	}
	e.stream, other = other, e.stream
	joinBoth(t, ends, RoCE, "after")
	if err := e.putBatch(d); err != nil {
		t.Error(err)
	}
}

// Streams of different contexts are refused.
func TestForeignStream(t *testing.T) {
	ends := newPairInProcess(t, RoCE)
	e := ends[0]
	e.mustDo(func(at *acl.Thread) error {
		wantRefusal(t, e.comm.Put(at, ends[1].stream, []Desc{{e.device.Address(), e.peer.Device, 64}}), acl.ErrWrongContext,
			"stream")
		return nil
	})
}

// A communicator that fails in the background reports the failure, and accepts no more work.
func TestAsyncError(t *testing.T) {
	ends := newPairInProcess(t, RoCE)
	e := ends[0]
	mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error { return e.comm.AsyncError(at) })
	e.addFaults("link:peer=*,down_after_ops=0,mode=hang")
	d := Desc{e.device.Address(), e.peer.Device, 64}
	e.mustDo(func(t *acl.Thread) error { return e.comm.Put(t, e.stream, []Desc{d}) })
	mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
		wantCode(t, e.comm.AsyncError(at), 21, "HcclGetCommAsyncError")
		wantRefusal(t, e.comm.AsyncError(at), ErrFenced, "couple")
		return nil
	})
	wantRefusal(t, e.putBatch(d), ErrFenced, "couple")
	e.mustDo(e.stream.Abort)
}

func TestAsyncErrorOfAnOldLibrary(t *testing.T) {
	ends := newPairInProcess(t, RoCE, "HcclGetCommAsyncError")
	e := ends[0]
	mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
		err := e.comm.AsyncError(at)
		var missing *MissingError
		if !errors.As(err, &missing) || !errors.Is(err, acl.Unsupported) {
			t.Errorf("got %v", err)
		}
		return nil
	})
	if err := e.putBatch(Desc{e.device.Address(), e.peer.Device, 64}); err != nil {
		t.Errorf("not knowing condemns: %v", err)
	}
}
