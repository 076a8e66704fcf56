//go:build cgo && linux

package npu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
)

// copyPair returns a page of the device, by index, and the page of the arena for the copy.
func copyPair(i, length uint32) effects.CopyPair {
	return effects.CopyPair{From: effects.Page{Index: arenaPages + i, Length: length},
		To: effects.Page{Index: testPages + 2 - i, Length: length}}
}

// openFilled opens pools in which every page of the device is filled.
func openFilled(t testing.TB, r *rig, o Options) (*nodeMemory, *eventBox) {
	t.Helper()
	b := newEventBox()
	p := openNode(t, r.openDevice(o), testEnv(b, true))
	for i := range uint32(testPages) {
		p.fillPage(t, copyPair(i, testPageBytes).From, pattern(testPageBytes, i))
	}
	return p, b
}

func (p *nodeMemory) wantCopied(t testing.TB, pairs ...effects.CopyPair) {
	t.Helper()
	for _, pair := range pairs {
		want := pattern(testPageBytes, pair.From.Index-arenaPages)[:pair.To.Length]
		if !bytes.Equal(p.PageBytes(pair.To), want) {
			t.Errorf("page %d is not what page %d holds", pair.To.Index, pair.From.Index)
		}
	}
}

// olderSymbols hides functions that older releases of CANN lack.
var olderSymbols = []string{
	"aclrtStreamAbort", "aclrtDestroyStreamForce", "aclrtStreamQuery", "aclrtSynchronizeEventWithTimeout",
	"aclrtCreateEventExWithFlag", "aclrtMemcpyBatchAsync",
}

// As many bytes arrive as are valid; several copies run side by side; spans of the machine are not kept.
func TestCopiesMoveWhatIsValid(t *testing.T) {
	for age, hidden := range map[string][]string{"new": nil, "old": olderSymbols} {
		t.Run(age, func(t *testing.T) {
			p, b := openFilled(t, newRig(t, hidden...), Options{})
			rest := effects.Page{Index: testPages + 2, Length: testPageBytes}
			p.fillPage(t, rest, pattern(testPageBytes, 99))
			var all []effects.CopyPair
			for i := range uint32(testPages / 2) {
				pairs := []effects.CopyPair{copyPair(2*i, 1+7000*i), copyPair(2*i+1, testPageBytes)}
				all = append(all, pairs...)
				p.StartCopy(&effects.Copy{Corr: effects.Corr(i + 1), Pairs: pairs})
				clear(pairs)
			}
			seen := map[effects.Corr]bool{}
			for range testPages / 2 {
				done := b.nextEvent(t).(*effects.CopyDone)
				if done.Code != effects.OK || !done.Settled || seen[done.Corr] {
					t.Fatalf("got %+v", done)
				}
				seen[done.Corr] = true
			}
			p.wantCopied(t, all...)
			if !bytes.Equal(p.PageBytes(rest)[1:], pattern(testPageBytes, 99)[1:]) {
				t.Error("more was copied than was valid")
			}
			p.CancelCopy(1) // Copy 1 has ended, and copy 77 never existed.
			p.CancelCopy(77)
		})
	}
}

func TestCopiesWithinTheHost(t *testing.T) {
	r, b := newRig(t), newEventBox()
	env := testEnv(b, true)
	env.Second.Host = true
	p := openNode(t, r.openDevice(Options{}), env)
	p.fillPage(t, copyPair(4, testPageBytes).From, pattern(testPageBytes, 4))
	p.StartCopy(&effects.Copy{Corr: 5, Pairs: []effects.CopyPair{copyPair(4, 1000)}})
	b.wantDone(t, 5, effects.OK, true)
	p.wantCopied(t, copyPair(4, 1000))
}

// A copy that fails, completely or in part, ends at once, and settles when the stream is gone. Copies on further
// streams, and the next copy on a new stream, are not affected.
func TestCopiesThatFail(t *testing.T) {
	for name, fault := range map[string]string{
		"on the device": "done:of=copy,fail=1,code=507056", "in part": "done:of=copy,partial=1,bytes=5000,code=507056",
		"at submission":        "call:sym=aclrtMemcpyBatchAsync,nth=1,count=1,code=507056",
		"without an event":     "call:sym=aclrtRecordEvent,nth=1,count=1,code=207007",
		"unabortable at first": "done:of=copy,fail=1,code=507056;call:sym=aclrtStreamAbort,nth=1,count=3,code=507000",
		"still there at first": "done:of=copy,fail=1,code=507056;call:sym=aclrtDestroyStreamForce,nth=1,count=2,code=507000",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p, b := openFilled(t, r, Options{CopyStreams: 1, StuckAfter: longEnough})
			r.runCommand("faults " + fault)
			p.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, testPageBytes)}})
			p.StartCopy(&effects.Copy{Corr: 2, Pairs: []effects.CopyPair{copyPair(1, testPageBytes)}})
			b.wantDone(t, 1, effects.Faulted, false)
			b.wantSettled(t, 1, effects.Faulted)
			b.wantDone(t, 2, effects.OK, true)
			p.wantCopied(t, copyPair(1, testPageBytes))
		})
	}
}

// If no stream can be made, nothing was begun.
func TestCopiesWithoutAStream(t *testing.T) {
	r := newRig(t)
	p, b := openFilled(t, r, Options{CopyStreams: 1, StuckAfter: longEnough})
	r.runCommand("faults done:of=copy,fail=1,code=507056;call:sym=aclrtCreateStreamWithConfig,nth=1,count=1,code=207005")
	for corr := range effects.Corr(3) {
		p.StartCopy(&effects.Copy{Corr: corr, Pairs: []effects.CopyPair{copyPair(uint32(corr), testPageBytes)}})
	}
	b.wantDone(t, 0, effects.Faulted, false)
	b.wantSettled(t, 0, effects.Faulted)
	b.wantDone(t, 1, effects.Faulted, true)
	b.wantDone(t, 2, effects.OK, true)
	p.wantCopied(t, copyPair(2, testPageBytes))
}

// A copy that hangs is given up; queued copies continue.
func TestCopiesThatHang(t *testing.T) {
	r := newRig(t)
	p, b := openFilled(t, r, Options{CopyStreams: 1, StuckAfter: time.Millisecond})
	r.runCommand("faults done:of=copy,hang=1")
	p.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, testPageBytes)}})
	b.wantDone(t, 1, effects.Faulted, false)
	b.wantSettled(t, 1, effects.Faulted)
	r.runCommand("clear") // A slow device had not begun the first copy, so the next would hang.
	p.device.options.StuckAfter = longEnough
	p.StartCopy(&effects.Copy{Corr: 2, Pairs: []effects.CopyPair{copyPair(0, testPageBytes)}})
	b.wantDone(t, 2, effects.OK, true)
	p.wantCopied(t, copyPair(0, testPageBytes))
}

// The piece that an abort interrupts has time to end before its pages count as settled (M4). A slow machine takes
// longer and passes; at least one of a few rounds is quick enough to show a missing wait.
func TestCopiesThatWereAbortedTakeTheirTime(t *testing.T) {
	r := newRig(t)
	p, b := openFilled(t, r, Options{CopyStreams: 1, StuckAfter: time.Millisecond})
	for corr := range effects.Corr(4) {
		r.runCommand("faults done:of=copy,hang=1")
		from := time.Now()
		p.StartCopy(&effects.Copy{Corr: corr + 1, Pairs: []effects.CopyPair{copyPair(0, testPageBytes)}})
		b.wantDone(t, corr+1, effects.Faulted, false)
		b.wantSettled(t, corr+1, effects.Faulted)
		if took := time.Since(from); took < abortMargin {
			t.Errorf("settled after %v; want %v", took, abortMargin)
		}
		r.runCommand("clear")
	}
}

// Without an abort a copy that hangs settles at its end, and has then succeeded.
func TestCopiesThatHangInAnOldLibrary(t *testing.T) {
	r := newRig(t, olderSymbols...)
	p, b := openFilled(t, r, Options{CopyStreams: 1, StuckAfter: time.Millisecond})
	r.runCommand("faults done:of=copy,hang=1")
	p.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, testPageBytes)}})
	b.wantDone(t, 1, effects.Faulted, false)
	select {
	case ev := <-b.events:
		t.Errorf("while it hangs came %+v", ev)
	default:
	}
	r.runCommand("clear") // If the copy has not begun, it will not hang.
	r.runCommand("release")
	b.wantSettled(t, 1, effects.OK)
	p.wantCopied(t, copyPair(0, testPageBytes))
}

// A copy that hangs delays only copies that wait for its stream, and these can be canceled.
func TestCopiesBesideOneThatHangs(t *testing.T) {
	r := newRig(t)
	p, b := openFilled(t, r, Options{CopyStreams: 2, StuckAfter: longEnough})
	r.runCommand("faults done:of=copy,hang=1")
	p.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, testPageBytes)}})
	waitForHang(r, 1)
	for corr := range effects.Corr(3) {
		p.StartCopy(&effects.Copy{Corr: 10 + corr, Pairs: []effects.CopyPair{copyPair(1, testPageBytes)}})
		b.wantDone(t, 10+corr, effects.OK, true)
	}
	r.runCommand("faults done:of=copy,hang=1")
	p.StartCopy(&effects.Copy{Corr: 2, Pairs: []effects.CopyPair{copyPair(2, testPageBytes)}})
	waitForHang(r, 2)
	p.StartCopy(&effects.Copy{Corr: 3, Pairs: []effects.CopyPair{copyPair(3, testPageBytes)}})
	p.CancelCopy(3)
	b.wantDone(t, 3, effects.Cancelled, true)
	p.CancelCopy(1) // In the device's hands.
	r.runCommand("release")
	for range 2 {
		if done := b.nextEvent(t).(*effects.CopyDone); done.Code != effects.OK || !done.Settled {
			t.Errorf("got %+v", done)
		}
	}
	p.wantCopied(t, copyPair(0, testPageBytes), copyPair(2, testPageBytes))
}

// A copy that was put into a stream and has not begun belongs to the device: after a CancelCopy the copy's own end is
// reported.
func TestCopiesThatWereTaken(t *testing.T) {
	b := newEventBox()
	c := newCopyRunner(&nodeMemory{sink: b}, newWorkQueue(nil, 0))
	c.cancelable[1] = &job{}
	c.cancelCopy(1)
	if len(b.events) > 0 {
		t.Errorf("said to have ended: %+v", <-b.events)
	}
}

// waitForHang returns when so many faults have struck.
func waitForHang(r *rig, faults int64) {
	r.t.Helper()
	for end := time.Now().Add(longEnough); ; time.Sleep(time.Millisecond) {
		stats, err := r.npu.Stats()
		if err != nil || time.Now().After(end) {
			r.t.Fatalf("nothing hangs: %v", err)
		}
		if stats["injected"] >= faults {
			return
		}
	}
}

// Closing a node ends copies that hang, refuses queued copies, and frees the memory.
func TestCopiesAtTheEnd(t *testing.T) {
	r, b := newRig(t), newEventBox()
	opened, err := r.openDevice(Options{CopyStreams: 1, StuckAfter: longEnough}).Open(t.Context(), testEnv(b, true))
	if err != nil {
		t.Fatal(err)
	}
	r.runCommand("faults done:of=copy,hang=1")
	opened.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, 1)}})
	opened.StartCopy(&effects.Copy{Corr: 2, Pairs: []effects.CopyPair{copyPair(1, 1)}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waitForHang(r, 1)
	if err := opened.Close(ctx); err != nil {
		t.Errorf("closing: %v", err)
	}
	b.wantDone(t, 2, effects.Closed, true)
	b.wantDone(t, 1, effects.Faulted, false)
	b.wantSettled(t, 1, effects.Faulted)
	opened.StartCopy(&effects.Copy{Corr: 3, Pairs: []effects.CopyPair{copyPair(1, 1)}})
	b.wantDone(t, 3, effects.Closed, true)
}

// If a device does not release a stream, the memory stays and the error says so; when the device releases the stream,
// everything is freed.
func TestCopiesThatCannotBeEnded(t *testing.T) {
	r, b := newRig(t), newEventBox()
	opened, err := r.openDevice(Options{CopyStreams: 1, StuckAfter: time.Millisecond,
		CloseTimeout: time.Millisecond}).Open(t.Context(), testEnv(b, true))
	if err != nil {
		t.Fatal(err)
	}
	r.runCommand("faults done:of=copy,hang=1;call:sym=aclrtStreamAbort,nth=*,code=507000,msg=no")
	opened.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, 1)}})
	b.wantDone(t, 1, effects.Faulted, false)
	if err := opened.Close(t.Context()); err == nil {
		t.Error("closed although a copy may go on")
	} else if failed := (*acl.Error)(nil); !errors.As(err, &failed) || failed.Call != "aclrtStreamAbort" {
		t.Errorf("it says: %v", err)
	}
	if len(b.events) != 0 {
		t.Errorf("settled: %+v", <-b.events)
	}
	r.runCommand("clear")
	if err := opened.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// On a lost device everything fails, and nothing is reported as settled.
func TestCopiesOnALostDevice(t *testing.T) {
	r, b := newRig(t), newEventBox()
	opened, err := r.openDevice(Options{Device: 2, CopyStreams: 1, CloseTimeout: time.Millisecond}).Open(t.Context(),
		testEnv(b, true))
	if err != nil {
		t.Fatal(err)
	}
	r.runCommand("faults device:lost=2")
	opened.StartCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{copyPair(0, 1)}})
	b.wantDone(t, 1, effects.Faulted, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := opened.Close(ctx); !errors.Is(err, acl.DeviceLost) {
		t.Errorf("closing: %v", err)
	}
	r.runCommand("clear") // The device works again, unlike a real lost device.
	if err := opened.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if len(b.events) != 0 {
		t.Errorf("settled: %+v", <-b.events)
	}
}

func ExampleOptions() {
	o, err := Options{}.withDefaults()
	fmt.Println(o.CopyStreams, o.ScatterStreams, o.StuckAfter, o.CloseTimeout, err)
	// Output: 4 4 10s 5s <nil>
}
