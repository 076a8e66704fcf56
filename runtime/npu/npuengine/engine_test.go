//go:build cgo && linux

package npuengine

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/npu"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

func TestMain(m *testing.M) {
	os.Setenv("CANNEMU_DEVICE_MEMORY", "67108864")
	goleak.VerifyTestMain(m)
}

type discardSink struct{}

func (discardSink) Post(effects.Event) {}

type rig struct {
	t      testing.TB
	npu    *acltest.NPU
	engine *Engine
	opened device.Device
}

// newRig opens an engine and a node with pools of pages of pageBytes bytes. At the end of the test nothing may be left.
func newRig(t testing.TB, pages uint32, pageBytes uint64, host bool) *rig {
	t.Helper()
	path, err := softnpu.Variant{}.BuildLibrary()
	if errors.Is(err, softnpu.ErrNoTools) {
		t.Skip(err)
	}
	must(t, err)
	r := &rig{t: t}
	r.npu, err = acltest.OpenNPU(path)
	must(t, err)
	lib, err := acl.Open(acl.Options{Library: path})
	must(t, err)
	left := r.runCommand("leaks")
	d, err := npu.Open(lib, npu.Options{Device: 1})
	must(t, err)
	r.opened, err = d.Open(t.Context(), device.Env{
		Engine: device.Pool{Host: host, Pages: pages, PageBytes: pageBytes}, Buffer: effects.BufferID{1}, Sink: discardSink{},
		Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	r.engine, err = New(lib, d)
	must(t, err)
	t.Cleanup(func() {
		r.runCommand("clear")
		must(t, r.engine.Close())
		must(t, r.opened.Close(t.Context()))
		must(t, d.Close())
		must(t, lib.Close())
		if now := r.runCommand("leaks"); now != left {
			t.Errorf("objects on the devices after the test:\n%sand before the test:\n%s", now, left)
		}
		if broken := r.runCommand("violations"); broken != "" {
			t.Errorf("the test broke rules of the vendor:\n%s", broken)
		}
		r.runCommand("forget")
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) runCommand(command string) string {
	r.t.Helper()
	reply, err := r.npu.Control(command)
	must(r.t, err)
	return reply
}

// pages returns the first n pages, each with a different number of valid bytes.
func (r *rig) pages(n uint32, most uint32) (at []device.Page) {
	for i := range n {
		page := effects.Page{Index: i, Length: most - 13*i}
		at = append(at, device.Page{Address: r.opened.PageAddress(page), Bytes: page.Length})
	}
	return at
}

func fillContent(i int, b []byte) {
	for j := range b {
		b[j] = byte(j)*3 + byte(j>>8) + byte(i*17)
	}
}

func isContent(i int, b []byte) bool {
	want := make([]byte, len(b))
	fillContent(i, want)
	return bytes.Equal(b, want)
}

// FillPages and ReadPages agree, whether many pages fit into a batch or not even one.
func TestFillAndLook(t *testing.T) {
	for name, c := range map[string]struct {
		pages     uint32
		pageBytes uint32
		host      bool
	}{"small": {40, 8 << 10, false}, "several batches": {13, 1 << 20, false}, "large": {2, 5 << 20, false}, "host": {4,
		8 << 10, true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.pages, uint64(c.pageBytes), c.host)
			pages := r.pages(c.pages, c.pageBytes)
			must(t, r.engine.FillPages(pages, fillContent))
			seen := 0
			must(t, r.engine.ReadPages(pages, func(i int, b []byte) {
				if i != seen || len(b) != int(pages[i].Bytes) || !isContent(i, b) {
					t.Errorf("page %d, of which %d bytes were looked at as number %d, is not what was filled", i, len(b), seen)
				}
				seen++
			}))
			if seen != len(pages) {
				t.Errorf("%d of %d pages were looked at", seen, len(pages))
			}
			// A byte that is wrong on the device is seen.
			must(t, r.engine.FillPages(pages[1:2], func(_ int, b []byte) { fillContent(1, b); b[len(b)-1]++ }))
			must(t, r.engine.ReadPages(pages, func(i int, b []byte) {
				if isContent(i, b) != (i != 1) {
					t.Errorf("page %d", i)
				}
			}))
		})
	}
}

// Chunks are looked at in the engine's own memory, as many as the fetch has taken from the first on.
func TestTake(t *testing.T) {
	r := newRig(t, 8, 100<<10, false)
	pages := r.pages(8, 100<<10)
	must(t, r.engine.FillPages(pages, fillContent))
	var keys []int
	take := r.engine.ScatterFunc(func(key int, chunk []byte) {
		if len(chunk) != int(pages[key].Bytes) || !isContent(key, chunk) {
			t.Errorf("chunk %d is not what was put", key)
		}
		keys = append(keys, key)
	})
	must(t, take(t.Context(), 0, pages[:5]))
	must(t, take(t.Context(), 5, pages[5:]))
	if len(keys) != len(pages) || keys[7] != 7 {
		t.Errorf("looked at %v", keys)
	}
}

// What fails is told, and the next call does not notice.
func TestFaults(t *testing.T) {
	r := newRig(t, 3, 4<<10, false)
	pages := r.pages(3, 4<<10)
	r.runCommand("faults call:sym=aclrtMemcpy,nth=2,count=1,code=507000;call:sym=aclrtMemcpy,nth=7,count=1,code=507000")
	if err := r.engine.FillPages(pages, fillContent); !errors.Is(err, acl.Device) {
		t.Errorf("filled: %v", err)
	}
	must(t, r.engine.FillPages(pages, fillContent))
	if err := r.engine.ReadPages(pages, func(int, []byte) { t.Error("looked at") }); !errors.Is(err, acl.Device) {
		t.Errorf("looked at: %v", err)
	}
	r.runCommand("faults oom:device=1,after=0")
	never := r.engine.ScatterFunc(func(int, []byte) { t.Error("taken") })
	if err := never(t.Context(), 0, pages); !errors.Is(err, acl.OutOfMemory) {
		t.Errorf("taken without memory: %v", err)
	}
	r.runCommand("clear")
	r.runCommand("faults done:of=copy,fail=2,code=507056")
	if err := never(t.Context(), 0, pages); !errors.Is(err, acl.Link) {
		t.Errorf("taken by a copy that fails: %v", err)
	}
	if err := r.engine.FillPages([]device.Page{{Address: 1, Bytes: 1}}, fillContent); !errors.Is(err, acl.ErrRange) {
		t.Errorf("a page of nobody's: %v", err)
	}
	must(t, r.engine.ReadPages(pages, func(i int, b []byte) {
		if !isContent(i, b) {
			t.Errorf("page %d is not what was filled", i)
		}
	}))
}
