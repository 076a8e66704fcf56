package runtime

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// copyWorkers is how many copies run at a time here.
const copyWorkers = 4

// gatedMemory is a pool whose reads wait until they may go on.
type gatedMemory struct {
	*hostMemory
	reading chan uint32 // told of each read that begins
	gate    chan error  // lets one end, as it says
}

func (m *gatedMemory) Read(dst []byte, page effects.Page) error {
	m.reading <- page.Index
	if err := <-m.gate; err != nil {
		return err
	}
	copy(dst, m.Bytes(page))
	return nil
}

type copyRig struct {
	t    *testing.T
	from *gatedMemory
	to   *hostMemory
	box  *mailbox
	c    *copier
	told []effects.CopyDone // that nobody has looked at
}

func newCopyRig(t *testing.T) *copyRig {
	const pages, pageBytes = 16, 64
	r := &copyRig{t: t, box: newMailbox(1, 1)}
	c := plane.PoolConfig{Pages: pages, PageBytes: pageBytes}
	from, err := newHostMemory(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.to, err = newHostMemory(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	for i := range from.mem {
		from.mem[i] = byte(i * 7)
	}
	r.from = &gatedMemory{hostMemory: from, reading: make(chan uint32, pages), gate: make(chan error, pages)}
	r.c = newCopier(r.from, r.to.Bytes, copyWorkers, r.box, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := errors.Join(r.from.Close(), r.to.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// pair is one page; its copy lies where nothing else does.
func pair(index, length uint32) effects.CopyPair {
	return effects.CopyPair{From: effects.Page{Index: index, Length: length},
		To: effects.Page{Pool: 1, Index: 15 - index, Length: length}}
}

func (r *copyRig) done() effects.CopyDone {
	r.t.Helper()
	for {
		for _, ev := range r.box.takeEvents() {
			if d, ok := ev.(*effects.CopyDone); ok {
				r.told = append(r.told, *d)
			}
		}
		if len(r.told) > 0 {
			d := r.told[0]
			r.told = r.told[1:]
			return d
		}
		select {
		case <-r.box.wake:
		case <-time.After(time.Minute):
			r.t.Fatal("a copy never ended")
		}
	}
}

func (r *copyRig) want(d effects.CopyDone, corr effects.Corr, code effects.Code) {
	r.t.Helper()
	if d.Corr != corr || d.Code != code || !d.Settled || d.At == 0 {
		r.t.Fatalf("got %+v, want copy %d to end as %v", d, corr, code)
	}
}

// Bytes arrive, as many as are valid and no more.
func TestCopiesMoveWhatIsValid(t *testing.T) {
	r := newCopyRig(t)
	r.from.gate <- nil
	r.from.gate <- nil
	r.c.startCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{pair(2, 64), pair(3, 20)}})
	r.want(r.done(), 1, effects.OK)
	whole, short := r.to.mem[13*64:14*64], r.to.mem[12*64:13*64]
	if !bytes.Equal(whole, r.from.mem[2*64:3*64]) || !bytes.Equal(short[:20], r.from.mem[3*64:3*64+20]) ||
		!bytes.Equal(short[20:], make([]byte, 44)) {
		t.Error("the pages do not hold what was copied")
	}
}

// Several run beside each other, no more than there are workers; a span of the machine is not kept.
func TestCopiesOverlap(t *testing.T) {
	r := newCopyRig(t)
	for i := range copyWorkers + 1 {
		pairs := []effects.CopyPair{pair(uint32(i), 64)}
		r.c.startCopy(&effects.Copy{Corr: effects.Corr(i + 1), Pairs: pairs})
		pairs[0] = effects.CopyPair{}
	}
	for range copyWorkers {
		<-r.from.reading // All of them wait at the gate.
	}
	if n := len(r.from.reading); n != 0 {
		t.Errorf("%d more than the workers run", n)
	}
	for range copyWorkers + 1 {
		r.from.gate <- nil
	}
	for range copyWorkers + 1 {
		if d := r.done(); d.Code != effects.OK {
			t.Errorf("got %+v", d)
		}
	}
}

// A copy is given up between pages; what waits behind others is not begun; a device's error ends its own copy only.
func TestCopiesEndEarly(t *testing.T) {
	r := newCopyRig(t)
	r.c.tasks.workersMax = 1
	r.c.startCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{pair(0, 64), pair(1, 64)}})
	r.c.startCopy(&effects.Copy{Corr: 2, Pairs: []effects.CopyPair{pair(2, 64)}})
	r.c.startCopy(&effects.Copy{Corr: 3, Pairs: []effects.CopyPair{pair(3, 64), pair(4, 64)}})
	<-r.from.reading
	r.c.cancelCopy(1)
	r.c.cancelCopy(2)
	r.c.cancelCopy(9) // Nobody's.
	r.from.gate <- nil
	r.from.gate <- errors.New("uncorrectable")
	r.want(r.done(), 1, effects.Cancelled)
	r.want(r.done(), 2, effects.Cancelled)
	r.want(r.done(), 3, effects.Faulted)
	close(r.from.reading)
	for index := range r.from.reading {
		if index != 3 {
			t.Errorf("page %d was read", index)
		}
	}
}

// Closing waits for a device in the middle of a page, and says so if it does not come back.
func TestCopiesClose(t *testing.T) {
	r := newCopyRig(t)
	r.c.startCopy(&effects.Copy{Corr: 1, Pairs: []effects.CopyPair{pair(0, 64), pair(1, 64)}})
	<-r.from.reading
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var e *Error
	if err := r.c.close(ctx); !errors.As(err, &e) || e.Code != effects.Cancelled || e.Count != 1 {
		t.Errorf("with a copy under way: %v", err)
	}
	r.from.gate <- nil
	r.want(r.done(), 1, effects.Closed)
}
