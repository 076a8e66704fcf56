//go:build cgo && linux

package npu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
)

// Pages follow each other in memory as planes need it; memory on the device cannot be read by the program.
func TestPools(t *testing.T) {
	for name, c := range map[string]struct{ host, copies, attachable bool }{"device": {}, "host": {host: true},
		"two":              {host: true, copies: true},
		"host for engines": {host: true, attachable: true}, "device for engines": {attachable: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.openDevice(Options{Device: 1})
			env := testEnv(newEventBox(), c.copies)
			env.Engine.Host, env.Engine.Attachable = c.host, c.attachable
			p := openNode(t, d, env)
			if p.Name() != "npu:1" {
				t.Errorf("it is called %q", p.Name())
			}
			leased := p.LeasedPool()
			served, regions := leased.FirstRegion(), leased.Regions()
			if want := 1 + len(p.pools[1:]); len(regions) != want || regions[0] != served {
				t.Fatalf("planes are given %+v", regions)
			}
			if served.Host != c.host {
				t.Errorf("peers reach %+v", served)
			}
			for _, region := range regions {
				if region.Bytes != 2<<20 || !region.Host && region.Base%hugePage != 0 {
					t.Errorf("a region of %+v", region)
				}
			}
			if want := (effects.Buffer{ID: env.Buffer, Pages: p.pools[0].Pages,
				PageBytes: testPageBytes}); leased.Buffer() != want {
				t.Errorf("peers see %+v, want %+v", leased.Buffer(), want)
			}
			for i := range uint32(testPages) {
				page := effects.Page{Index: i, Length: testPageBytes - i}
				base := served.Base
				if want := base + uintptr(i*testPageBytes); p.PageAddress(page) != want {
					t.Errorf("page %d is at %#x, want %#x", i, p.PageAddress(page), want)
				}
				if got := p.PageBytes(page); (got != nil) != c.host || c.host &&
					(len(got) != int(page.Length) || cap(got) != len(got)) {
					t.Errorf("page %d has %d bytes for the program", i, len(got))
				}
				p.fillPage(t, page, pattern(int(page.Length), i))
			}
			for i := range uint32(testPages) {
				page := effects.Page{Index: i, Length: testPageBytes - i}
				if !bytes.Equal(p.pageContent(t, page), pattern(int(page.Length), i)) {
					t.Errorf("page %d does not hold what was stored there", i)
				}
			}
		})
	}
}

// If AscendCL returns memory that begins inside a huge page, the pool's pages begin later.
func TestPoolBeginsAligned(t *testing.T) {
	const align = 16 << 20
	r := newRig(t)
	c := r.openDevice(Options{}).context
	err := c.Do(func(thread *acl.Thread) error {
		// At least one of the two allocations is not aligned, because there are 2 MiB between them.
		for range 2 {
			p, err := newPool(device.Pool{Pages: 3, PageBytes: 1 << 20})
			if err != nil {
				return err
			}
			if err := p.allocateAligned(t.Context(), thread, align); err != nil {
				return err
			}
			defer func() {
				if err := p.freeMemory(thread); err != nil {
					t.Error(err)
				}
			}()
			if region := p.memoryRegion(); region.Base%align != 0 || region.Bytes != 4<<20 {
				t.Errorf("it begins at %#x, %d bytes", region.Base, region.Bytes)
			}
			if p.offset+p.bytes > p.memory.Size() {
				t.Errorf("%d bytes from %d on in memory of %d", p.bytes, p.offset, p.memory.Size())
			}
			if err := thread.Upload(p.memory.Range(p.offset+2<<20, 1<<20), pattern(1<<20, 1)); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPoolsWithoutMemory(t *testing.T) {
	r := newRig(t)
	d := r.openDevice(Options{})
	for what, change := range map[string]func(*device.Env){
		"50331648 bytes of device 0, which has 67108864 bytes, of which 67108864 are free": func(e *device.Env) {
			e.Second.Pages, e.Second.PageBytes = 500, 96<<10
		},
		"pinned memory of the host": func(e *device.Env) { e.Engine.Pages = 2000 },
	} {
		r.runCommand("faults oom:device=0,after=41943040;oom:host,after=41943040")
		env := testEnv(newEventBox(), true)
		change(&env)
		_, err := d.Open(t.Context(), env)
		if !errors.Is(err, device.ErrNoMemory) || !errors.Is(err, acl.OutOfMemory) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want it to tell of %q", err, what)
		}
		r.runCommand("clear")
	}
	for name, c := range map[string]device.Pool{"no pages": {PageBytes: 1}, "no bytes": {Pages: 1},
		"too much": {Pages: 1 << 31, PageBytes: 1 << 32}} {
		env := testEnv(newEventBox(), false)
		env.Engine = c
		if _, err := d.Open(t.Context(), env); err == nil || errors.Is(err, device.ErrNoMemory) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// After an outcome life goes on.
	openNode(t, d, testEnv(newEventBox(), true))
}

func TestOneNodeADevice(t *testing.T) {
	r := newRig(t)
	d := r.openDevice(Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Open(ended, testEnv(newEventBox(), false)); !errors.Is(err, context.Canceled) {
		t.Errorf("opened when nobody waited for it: %v", err)
	}
	for range 2 {
		p, err := d.Open(t.Context(), testEnv(newEventBox(), false))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Open(t.Context(), testEnv(newEventBox(), false)); !errors.Is(err, ErrBusy) {
			t.Errorf("a second node: %v", err)
		}
		if err := d.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closed under a node: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.PageRange(device.Page{Address: 1, Bytes: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("a page of no node: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(t.Context(), testEnv(newEventBox(), false)); !errors.Is(err, acl.ErrClosed) {
		t.Errorf("opened after the end: %v", err)
	}
}

func TestRangesAreOfThePools(t *testing.T) {
	r := newRig(t)
	d := r.openDevice(Options{})
	p := openNode(t, d, testEnv(newEventBox(), true))
	for _, page := range []effects.Page{{Index: 3, Length: 77}, {Index: arenaPages + 5, Length: 1}} {
		got, err := d.PageRange(device.Page{Address: p.PageAddress(page), Bytes: page.Length})
		if err != nil || got != p.pageRange(page) {
			t.Errorf("%+v is at %+v, %v", page, got, err)
		}
	}
	end := p.PageAddress(effects.Page{Index: arenaPages}) + hugePage
	for name, page := range map[string]device.Page{"past the end": {Address: end - 5, Bytes: 6},
		"behind it": {Address: end}, "nowhere": {Bytes: 1}} {
		if _, err := d.PageRange(page); !errors.Is(err, acl.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	r := newRig(t)
	for name, o := range map[string]Options{
		"CopyStreams": {CopyStreams: -1}, "ScatterStreams": {ScatterStreams: -1}, "StuckAfter": {StuckAfter: -1},
		"CloseTimeout": {CloseTimeout: -1},
	} {
		if _, err := Open(r.lib, o); err == nil || !strings.Contains(err.Error(), name+" is -1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(r.lib, Options{Device: 77}); !errors.Is(err, acl.Config) || !strings.Contains(fmt.Sprint(err),
		"npu: device 77: ") {
		t.Errorf("a device that is not there: %v", err)
	}
}

// Memory that another process may have imported stays until the process was removed as often as admitted.
func TestPoolsThatAreImportedStay(t *testing.T) {
	r := newRig(t)
	d := r.openDevice(Options{})
	env := testEnv(newEventBox(), false)
	env.Engine.Attachable = true
	opened, err := d.Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if x := opened.ExportedPool(); x == nil || x.Key == "" || x.Bytes-x.Offset < testPages*testPageBytes {
		t.Fatalf("exported is %+v", x)
	}
	const process = 4711
	for range 2 {
		if err := opened.AdmitProcess(process); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := opened.Close(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("closed while a process may have it imported: %v", err)
		}
		opened.RemoveProcess(process)
	}
	if err := opened.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened.RemoveProcess(process)
	if err := opened.AdmitProcess(process); !errors.Is(err, ErrClosed) {
		t.Errorf("admitted to what is closed: %v", err)
	}
}
