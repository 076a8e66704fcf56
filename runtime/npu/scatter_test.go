//go:build cgo && linux

package npu

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
)

// A kernel is the engine's own memory on the device, with code that stores chunks there: chunk i of a fetch at i pages.
type kernel struct {
	memory *acl.Memory
	fail   error
}

func newKernel(t testing.TB, d *Device) *kernel {
	t.Helper()
	k := &kernel{}
	err := d.context.Do(func(t *acl.Thread) (err error) {
		k.memory, err = t.AllocDevice(testPages*testPageBytes, acl.HugeFirst)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.context.Do(k.memory.Close); err != nil {
			t.Error(err)
		}
	})
	return k
}

func (k *kernel) enqueue(t *acl.Thread, s *acl.Stream, first int, chunks []acl.Range) error {
	for i, chunk := range chunks {
		if err := s.Copy(t, k.memory.Range(uint64(first+i)*testPageBytes, chunk.Size), chunk); err != nil {
			return err
		}
	}
	return k.fail
}

func (k *kernel) wantChunk(t testing.TB, d *Device, chunk int, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if err := d.context.Do(func(t *acl.Thread) error {
		return t.Download(got, k.memory.Range(uint64(chunk)*testPageBytes, uint64(len(got))))
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("chunk %d is not what its page holds", chunk)
	}
}

// scatterRig opens pools that are filled, and a kernel.
func scatterRig(t testing.TB, r *rig, o Options, host bool) (*nodeMemory, *kernel) {
	t.Helper()
	d := r.openDevice(o)
	k := newKernel(t, d)
	env := testEnv(newEventBox(), false)
	env.Engine.Host = host
	p := openNode(t, d, env)
	for i := range uint32(testPages) {
		p.fillPage(t, effects.Page{Index: i, Length: testPageBytes}, pattern(testPageBytes, i))
	}
	return p, k
}

func (p *nodeMemory) devicePages(pages ...effects.Page) (at []device.Page) {
	for _, page := range pages {
		at = append(at, device.Page{Address: p.PageAddress(page), Bytes: page.Length})
	}
	return at
}

func TestScatter(t *testing.T) {
	for name, c := range map[string]struct {
		host   bool
		hidden []string
	}{"from the device": {}, "from the host": {host: true}, "old": {hidden: olderSymbols}} {
		t.Run(name, func(t *testing.T) {
			p, k := scatterRig(t, newRig(t, c.hidden...), Options{ScatterStreams: 1}, c.host)
			scatter := p.device.ScatterFunc(k.enqueue)
			if err := scatter(t.Context(), 0,
				p.devicePages(effects.Page{Index: 3, Length: testPageBytes}, effects.Page{Index: 1, Length: testPageBytes})); err != nil {
				t.Fatal(err)
			}
			if err := scatter(t.Context(), 2, p.devicePages(effects.Page{Index: 0, Length: 77})); err != nil {
				t.Fatal(err)
			}
			k.wantChunk(t, p.device, 0, pattern(testPageBytes, 3))
			k.wantChunk(t, p.device, 1, pattern(testPageBytes, 1))
			k.wantChunk(t, p.device, 2, pattern(testPageBytes, 0)[:77])
			if err := scatter(t.Context(), 0, []device.Page{{Address: 1, Bytes: 1}}); !errors.Is(err, acl.ErrRange) {
				t.Errorf("scattered from nowhere: %v", err)
			}
		})
	}
}

// A scatter that fails reports the failure when none of its work is left on the device, and the next scatter is not
// affected.
func TestScattersThatFail(t *testing.T) {
	broken := errors.New("no such layer")
	for name, c := range map[string]struct {
		fault string
		fail  error
		want  error
	}{
		"in the engine": {"", broken, broken}, "on the device": {"done:of=copy,fail=1,code=507056", nil, acl.Link},
		"without a stream": {"call:sym=aclrtCreateStreamWithConfig,nth=1,count=1,code=207005", nil, acl.Exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p, k := scatterRig(t, r, Options{ScatterStreams: 1}, false)
			k.fail = c.fail
			r.runCommand("faults " + c.fault)
			page := effects.Page{Index: 5, Length: testPageBytes}
			if err := p.device.ScatterFunc(k.enqueue)(t.Context(), 0, p.devicePages(page)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			k.fail = nil
			if err := p.device.ScatterFunc(k.enqueue)(t.Context(), 0, p.devicePages(page)); err != nil {
				t.Fatal(err)
			}
			k.wantChunk(t, p.device, 0, pattern(testPageBytes, 5))
		})
	}
}

// A canceled fetch waits neither for its turn nor for a device that hangs, but only for work that may touch its memory
// (M8).
func TestScattersThatNobodyWaitsFor(t *testing.T) {
	r := newRig(t)
	p, k := scatterRig(t, r, Options{ScatterStreams: 1, StuckAfter: longEnough}, false)
	scatter, page := p.device.ScatterFunc(k.enqueue), effects.Page{Index: 2, Length: testPageBytes}
	r.runCommand("faults done:of=copy,hang=1")
	first, cancelFirst := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- scatter(first, 0, p.devicePages(page)) }()
	waitForHang(r, 1)
	second, cancelSecond := context.WithCancel(t.Context())
	cancelSecond()
	if err := scatter(second, 0, p.devicePages(page)); !errors.Is(err, context.Canceled) {
		t.Errorf("in the queue: %v", err)
	}
	cancelFirst()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, ErrStuck) {
		t.Errorf("in the device's hands: %v", err)
	}
	if err := scatter(t.Context(), 0, p.devicePages(page)); err != nil {
		t.Fatal(err)
	}
	k.wantChunk(t, p.device, 0, pattern(testPageBytes, 2))
}

func TestScattersThatHang(t *testing.T) {
	r := newRig(t)
	p, k := scatterRig(t, r, Options{StuckAfter: time.Millisecond}, false)
	r.runCommand("faults done:of=copy,hang=1")
	if err := p.device.ScatterFunc(k.enqueue)(t.Context(), 0, p.devicePages(effects.Page{Length: 1})); !errors.Is(err, ErrStuck) {
		t.Errorf("got %v", err)
	}
}

// Closing the pools ends scatters, and none begins afterwards.
func TestScattersAtTheEnd(t *testing.T) {
	r := newRig(t)
	d := r.openDevice(Options{ScatterStreams: 1, StuckAfter: longEnough})
	k := newKernel(t, d)
	opened, err := d.Open(t.Context(), testEnv(newEventBox(), false))
	if err != nil {
		t.Fatal(err)
	}
	at := opened.(*nodeMemory).devicePages(effects.Page{Length: 1})
	r.runCommand("faults done:of=copy,hang=1")
	scatter, ended := d.ScatterFunc(k.enqueue), make(chan error, 1)
	go func() { ended <- scatter(context.Background(), 0, at) }()
	waitForHang(r, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := opened.Close(ctx); err != nil {
		t.Errorf("closing: %v", err)
	}
	if err := <-ended; !errors.Is(err, ErrStuck) {
		t.Errorf("it ended with %v", err)
	}
	if err := scatter(t.Context(), 0, at); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
