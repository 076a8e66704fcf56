//go:build cgo && linux

package hccl_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

const (
	pages     = 32
	pageBytes = 64 << 10
)

// openWithSmallBatches opens a pair of nodes with batches of two pages, so that transfers have many batches.
func openWithSmallBatches(t *testing.T, r *hccltest.Rig, o hccltest.Options) *planetest.LeasedPair {
	t.Helper()
	change := o.Change
	o.Change = func(c *hccl.Config) {
		c.BatchBytes = 2 * pageBytes
		if change != nil {
			change(c)
		}
	}
	return planetest.NewLeasedPair(t, r.NodeMaker(o), pages, pageBytes)
}

// A batch that fails, in each possible way, fails its transfer. The transfer settles when none of its writes can land
// any more (M4). Transfers at the same time are not affected.
func TestBatchesThatFail(t *testing.T) {
	for _, c := range []struct{ name, rule string }{
		{"the call", "call:sym=HcclBatchPut,nth=2,code=12"},
		{"the mark behind it", "call:sym=aclrtRecordEvent,nth=2,code=207005"},
		{"on the stream", "done:fail=2,code=507057"},
		{"after some bytes", "done:partial=2,bytes=5000,code=507056"},
	} {
		for _, hccs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hccs=%v", c.name, hccs), func(t *testing.T) {
				r := hccltest.StartRig(t)
				p := openWithSmallBatches(t, r, hccltest.Options{HCCS: hccs})
				push, other := p.NewPush(t, 0, 8), p.NewPush(t, 8, pages-8)
				r.AddFaults(t, c.rule)
				corr, innocent := p.A.StartTransfer(push), p.A.StartTransfer(other)
				if done := p.A.AwaitDone(t, corr); done.Code != effects.Faulted {
					t.Fatalf("ended as %s", done.Code)
				}
				holds := p.B.FillOwnPages(t, 0, 8)
				if done := p.A.AwaitDone(t, innocent); done.Code != effects.OK {
					t.Fatalf("a transfer beside it ended as %s", done.Code)
				}
				p.WantArrived(t, other)
				holds()
				r.ClearFaults(t)
				p.WantWorking(t)
				wantFenced(t, p, 1)
			})
		}
	}
}

// wantFenced checks the number of fenced communicators, and that a new communicator was formed for each.
func wantFenced(t *testing.T, p *planetest.LeasedPair, fenced uint64) {
	t.Helper()
	s := p.A.Plane.(*hccl.Plane).Stats()
	if s.FencedEpochs != fenced || s.FormedEpochs != fenced+1 || s.Links != 1 {
		t.Errorf("%v; want %d fenced", s, fenced)
	}
}

// A call that fails at the fifth descriptor has queued four writes, which settle before the pages are reused.
func TestFaultyDescriptor(t *testing.T) {
	r := hccltest.StartRig(t)
	p := planetest.NewLeasedPair(t, r.NodeMaker(hccltest.Options{}), pages, pageBytes)
	p.A.Plane.(*hccl.Plane).AssumePoolPages(p.Link, 1<<20)
	push := p.NewPush(t, 0, 8)
	for i := range push.Remote {
		push.Remote[i].Index = uint32(2 * i) // No neighbors, so each page has its own descriptor.
	}
	push.Remote[4].Index = 1 << 19
	descriptors := r.ReadStat(t, "descriptors")
	p.WantEnd(t, push, effects.Faulted)
	if queued := r.ReadStat(t, "descriptors") - descriptors; queued != 4 {
		t.Fatalf("%d descriptors were queued", queued)
	}
	holds := p.B.FillOwnPages(t, 0, pages-1)
	read := p.NewRead(t, pages-1, 1)
	p.WantEnd(t, read, effects.OK)
	p.WantArrived(t, read)
	holds()
	wantFenced(t, p, 1)
}

// A batch hangs: the transfer ends at once as canceled and unsettled, and settles when the communicator is gone. Writes
// that the stream had begun may land late, up to R, but never in a page that was freed.
func TestCancelOfABatchThatHangs(t *testing.T) {
	for _, rule := range []string{"done:hang=2", "done:hang=2;late:ms=30"} {
		for _, hccs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hccs=%v", rule, hccs), func(t *testing.T) {
				r := hccltest.StartRig(t)
				p := openWithSmallBatches(t, r, hccltest.Options{HCCS: hccs, Change: func(c *hccl.Config) { c.CancelGrace = time.Millisecond }})
				push, other := p.NewPush(t, 0, 8), p.NewPush(t, 8, 8)
				r.AddFaults(t, rule)
				corr, innocent := p.A.StartTransfer(push), p.A.StartTransfer(other)
				awaitHang(t, r)
				p.A.Do(&effects.Cancel{Corr: corr})
				done := planetest.AwaitEvent(t, p.A, func(e *effects.TransferDone) bool { return e.Corr == corr })
				if done.Code != effects.Cancelled || done.Settled {
					t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
				}
				if end := p.A.AwaitSettled(t, corr); end.Code != effects.Cancelled {
					t.Fatalf("settled as %s", end.Code)
				}
				holds := p.B.FillOwnPages(t, 0, 8)
				if done := p.A.AwaitDone(t, innocent); done.Code != effects.OK {
					t.Fatalf("a transfer beside it ended as %s", done.Code)
				}
				p.WantArrived(t, other)
				awaitLateWrites(t, r)
				holds()
			})
		}
	}
}

// awaitHang waits until a batch hangs because of a rule.
func awaitHang(t *testing.T, r *hccltest.Rig) {
	t.Helper()
	eventually(t, "a batch hangs", func() bool { return r.CountInjected(t) > 0 })
}

// awaitLateWrites waits until no late writes are outstanding.
func awaitLateWrites(t *testing.T, r *hccltest.Rig) {
	t.Helper()
	eventually(t, "what was aborted has landed", func() bool { return r.ReadStat(t, "live.late_transfers") == 0 })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to this: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// If hardware wrote later than the vendor allows, the tests above would fail: here the hardware does.
func TestLateBeyondRIsSeen(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{Change: func(c *hccl.Config) { c.CancelGrace = time.Millisecond }})
	push := p.NewPush(t, 0, 2)
	r.AddFaults(t, "done:hang=1;late:ms=10,beyond_r=1")
	corr := p.A.StartTransfer(push)
	awaitHang(t, r)
	p.A.Do(&effects.Cancel{Corr: corr})
	p.A.AwaitDone(t, corr)
	own := p.B.PublishFilled(t, 0, 2)
	awaitLateWrites(t, r)
	if string(p.B.ReadPage(t, own[0])) == string(p.A.ReadPage(t, own[0])) {
		return
	}
	t.Fatal("a store beyond R did not land: nothing shows that one would be seen")
}

// A batch does not end in time: the transfer ends as expired, and the link continues.
func TestBatchThatTakesTooLong(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{Change: func(c *hccl.Config) { c.TransferTimeout = 500 * time.Millisecond }})
	push := p.NewPush(t, 0, 8)
	r.AddFaults(t, "done:hang=3")
	p.WantEnd(t, push, effects.Expired)
	holds := p.B.FillOwnPages(t, 0, 8)
	r.ClearFaults(t)
	eventually(t, "the link goes on", func() bool { // On a slow machine a batch may take that long by itself.
		return p.A.AwaitDone(t, p.A.StartTransfer(p.NewPush(t, 8, 1))).Code == effects.OK
	})
	holds()
}

// A link that fails below the library shows as a failed stream, as a hang that the library reports, or as a hang that
// nothing reports. The next communicator uses a new link.
func TestLostLinks(t *testing.T) {
	for _, c := range []struct {
		mode string
		want effects.Code
	}{{"error", effects.Faulted}, {"hang", effects.Faulted}, {"silent", effects.Expired}} {
		t.Run(c.mode, func(t *testing.T) {
			r := hccltest.StartRig(t)
			p := openWithSmallBatches(t, r, hccltest.Options{Change: func(o *hccl.Config) {
				if c.mode == "silent" {
					o.TransferTimeout = 500 * time.Millisecond
				}
			}})
			push := p.NewPush(t, 0, 8)
			r.AddFaults(t, "link:peer=*,down_after_ops=1,links=1,mode="+c.mode)
			p.WantEnd(t, push, c.want)
			holds := p.B.FillOwnPages(t, 0, 8)
			r.ClearFaults(t)
			eventually(t, "the link goes on", func() bool {
				return p.A.AwaitDone(t, p.A.StartTransfer(p.NewPush(t, 8, 1))).Code == effects.OK
			})
			holds()
		})
	}
}

// A communicator that is too busy to be destroyed delays the proof, not the outcome.
func TestBusyCommunicator(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{Change: func(c *hccl.Config) { c.DestroyTimeout = 500 * time.Millisecond }})
	push := p.NewPush(t, 0, 2)
	r.AddFaults(t, "done:fail=1,code=507057;destroy:busy=1000000")
	corr := p.A.StartTransfer(push)
	done := planetest.AwaitEvent(t, p.A, func(e *effects.TransferDone) bool { return e.Corr == corr })
	if done.Code != effects.Faulted || done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	r.ClearFaults(t)
	p.A.AwaitSettled(t, corr)
	holds := p.B.FillOwnPages(t, 0, 2)
	push = p.NewPush(t, 2, 2)
	p.WantEnd(t, push, effects.OK)
	p.WantArrived(t, push)
	holds()
}

// A batch that reaches the device's thread too late, for whatever reason, is not put into the stream.
func TestTimeIsReadRightBeforeSubmission(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{})
	push := p.NewPush(t, 0, 1)
	descriptors := r.ReadStat(t, "descriptors")
	if !p.A.Plane.(*hccl.Plane).RefusesLateBatch(p.Link,
		effects.Pair{Local: push.Local[0], Remote: effects.RemotePage{Buffer: push.Buffer, Index: push.Remote[0].Index}}) {
		t.Error("a batch was submitted after its time")
	}
	if queued := r.ReadStat(t, "descriptors") - descriptors; queued != 0 {
		t.Errorf("%d descriptors were queued", queued)
	}
	p.WantWorking(t)
}

// Time passes for waiting batches: behind a batch that hangs, and while a communicator is rebuilt. The clock is read
// before each submission, so no batch is stored after its deadline.
func TestTimePassesInTheQueue(t *testing.T) {
	for _, rebuilds := range []bool{false, true} {
		t.Run(fmt.Sprintf("rebuilds=%v", rebuilds), func(t *testing.T) {
			r := hccltest.StartRig(t)
			p := openWithSmallBatches(t, r, hccltest.Options{Change: func(c *hccl.Config) { c.CancelGrace, c.Window = time.Millisecond, 1 }})
			push, late := p.NewPush(t, 0, 2), p.NewPush(t, 2, 2)
			before := p.B.ReadPage(t, late.Remote[0])
			r.AddFaults(t, "done:hang=1")
			corr := p.A.StartTransfer(push)
			awaitHang(t, r)
			late.NotAfter = plane.Now().Add(50 * effects.Millisecond)
			if rebuilds {
				r.AddFaults(t, "prepare:delay=200")
				p.A.Do(&effects.Cancel{Corr: corr})
			}
			if done := p.WantEnd(t, late, effects.Expired); !done.Settled {
				t.Fatal("what was never submitted is not settled")
			}
			want := effects.Cancelled
			if !rebuilds {
				want = effects.OK
				r.RunCommand(t, "release")
			}
			if done := p.A.AwaitDone(t, corr); done.Code != want {
				t.Fatalf("the other ended as %s", done.Code)
			}
			if string(p.B.ReadPage(t, late.Remote[0])) != string(before) {
				t.Fatal("something was stored after its time")
			}
			r.ClearFaults(t)
			p.WantWorking(t)
		})
	}
}

// The decisive clock is the one that the submitting thread reads, after everything that may have delayed it.
func TestClockIsReadLast(t *testing.T) {
	r := hccltest.StartRig(t)
	var contexts []*acl.Context
	p := openWithSmallBatches(t, r, hccltest.Options{Change: func(c *hccl.Config) { contexts = append(contexts, c.Context) }})
	push := p.NewPush(t, 0, 2)
	before := p.B.ReadPage(t, push.Remote[0])
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		left <- contexts[0].Do(func(*acl.Thread) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	push.NotAfter = plane.Now().Add(50 * effects.Millisecond)
	corr := p.A.StartTransfer(push)
	eventually(t, "its time is over", func() bool { return plane.Now() > push.NotAfter })
	close(leave)
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	if done := p.A.AwaitDone(t, corr); done.Code != effects.Expired || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	if string(p.B.ReadPage(t, push.Remote[0])) != string(before) {
		t.Fatal("something was stored after its time")
	}
}
