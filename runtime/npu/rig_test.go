//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

func TestMain(m *testing.M) {
	// Small devices, so that running out of memory is near. The third is there to be lost.
	for name, value := range map[string]string{
		"CANNEMU_DEVICES": "3", "CANNEMU_DEVICE_MEMORY": "67108864", "CANNEMU_HOST_MEMORY": "67108864",
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}

// longEnough is a time that no working machine reaches.
const longEnough = 10 * time.Minute

// A rig is the software NPU of this process, and the binding's Library on it.
type rig struct {
	t    testing.TB
	npu  *acltest.NPU
	lib  *acl.Library
	left string // on the devices before the test
}

// newRig opens a library without some symbols, as an older CANN is. When the test ends, nothing may be left on the
// devices, and no rule of the vendor may have been broken.
func newRig(t testing.TB, hidden ...string) *rig {
	t.Helper()
	path, err := softnpu.Variant{Hide: hidden}.BuildLibrary()
	if named := os.Getenv("KVFERRY_SOFTNPU"); named != "" && len(hidden) == 0 {
		path, err = named, nil
	}
	if errors.Is(err, softnpu.ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	if r.npu, err = acltest.OpenNPU(path); err != nil {
		t.Fatal(err)
	}
	if r.lib, err = acl.Open(acl.Options{Library: path}); err != nil {
		t.Fatal(err)
	}
	r.left = r.runCommand("leaks")
	t.Cleanup(func() {
		if err := r.lib.Close(); err != nil {
			t.Error(err)
		}
		r.checkClean()
	})
	return r
}

func (r *rig) runCommand(command string) string {
	r.t.Helper()
	reply, err := r.npu.Control(command)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// checkClean fails the test if objects are left or rules were broken, and resets the software NPU's records.
func (r *rig) checkClean() {
	r.t.Helper()
	r.runCommand("clear")
	if left := r.runCommand("leaks"); left != r.left {
		r.t.Errorf("objects on the devices after the test:\n%sand before the test:\n%s", left, r.left)
	}
	if broken := r.runCommand("violations"); broken != "" {
		r.t.Errorf("the test broke rules of the vendor:\n%s", broken)
	}
	r.runCommand("forget")
}

// openDevice opens a device, which is closed at the end of the test.
func (r *rig) openDevice(o Options) *Device {
	r.t.Helper()
	d, err := Open(r.lib, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return d
}

// The pools of tests: a few pages that fill no whole huge page.
const (
	testPages     = 8
	testPageBytes = 96 << 10
	arenaPages    = testPages + 3
)

// testEnv returns an environment with a pool in device memory. With copies, the engine's pool is in host memory and is
// the arena, and a second pool, with the pages that follow, is in device memory.
func testEnv(box *eventBox, copies bool) device.Env {
	env := device.Env{
		Engine: device.Pool{Pages: testPages, PageBytes: testPageBytes}, Buffer: effects.BufferID{1}, Sink: box,
		Log: slog.New(slog.DiscardHandler),
	}
	if copies {
		second := env.Engine
		env.Engine.Host, env.Engine.Pages, env.Arena = true, arenaPages, arenaPages
		env.Second, env.SecondBuffer = &second, effects.BufferID{2}
	}
	return env
}

// openNode opens the pools of a node, which are closed at the end of the test.
func openNode(t testing.TB, d *Device, env device.Env) *nodeMemory {
	t.Helper()
	opened, err := d.Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return opened.(*nodeMemory)
}

// A eventBox collects the completions of a device.
type eventBox struct{ events chan effects.Event }

func newEventBox() *eventBox { return &eventBox{make(chan effects.Event, 1024)} }

func (b *eventBox) Post(ev effects.Event) { b.events <- ev }

// nextEvent returns the next completion.
func (b *eventBox) nextEvent(t testing.TB) effects.Event {
	t.Helper()
	select {
	case ev := <-b.events:
		return ev
	case <-time.After(longEnough):
		t.Fatal("nothing was completed")
		return nil
	}
}

// wantDone takes the next completion, which must be the given CopyDone.
func (b *eventBox) wantDone(t testing.TB, corr effects.Corr, code effects.Code, settled bool) {
	t.Helper()
	done, ok := b.nextEvent(t).(*effects.CopyDone)
	if !ok || done.Corr != corr || done.Code != code || done.Settled != settled || done.At == 0 {
		t.Fatalf("got %+v, want copy %d to end as %v, settled=%v", done, corr, code, settled)
	}
}

// wantSettled takes the next completion, which must be the given Settled.
func (b *eventBox) wantSettled(t testing.TB, corr effects.Corr, code effects.Code) {
	t.Helper()
	if settled, ok := b.nextEvent(t).(*effects.Settled); !ok || settled.Corr != corr || settled.Code != code {
		t.Fatalf("got %+v, want copy %d to be settled as %v", settled, corr, code)
	}
}

// pattern returns n bytes that depend on the seed and the position.
func pattern(n int, seed uint32) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8) + byte(seed*7)
	}
	return b
}

func (p *nodeMemory) fillPage(t testing.TB, page effects.Page, with []byte) {
	t.Helper()
	if bytes := p.PageBytes(page); bytes != nil {
		copy(bytes, with)
		return
	}
	if err := p.device.context.Do(func(t *acl.Thread) error { return t.Upload(p.pageRange(page), with) }); err != nil {
		t.Fatal(err)
	}
}

func (p *nodeMemory) pageContent(t testing.TB, page effects.Page) []byte {
	t.Helper()
	got := make([]byte, page.Length)
	if bytes := p.PageBytes(page); bytes != nil {
		copy(got, bytes)
		return got
	}
	if err := p.device.context.Do(func(t *acl.Thread) error { return t.Download(got, p.pageRange(page)) }); err != nil {
		t.Fatal(err)
	}
	return got
}
