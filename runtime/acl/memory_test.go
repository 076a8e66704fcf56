//go:build cgo && linux

package acl

import (
	"errors"
	"math"
	"syscall"
	"testing"
	"unsafe"
)

func TestOutOfMemoryIsAnOutcome(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	mustDo(t, c, func(thread *Thread) error {
		before, err := thread.MemInfo()
		if err != nil || before.Total == 0 || before.Free == 0 || before.Free > before.Total {
			t.Fatalf("%+v, %v", before, err)
		}
		var taken []*Memory
		for {
			m, err := thread.AllocDevice(8<<20, HugeFirst)
			if err != nil {
				failed := wantClass(t, err, OutOfMemory)
				if failed.Code != 207001 || failed.Call != "aclrtMalloc" || failed.Args != "size=8388608 policy=0" {
					t.Errorf("got %+v", failed)
				}
				break
			}
			taken = append(taken, m)
		}
		if len(taken) == 0 {
			t.Error("no allocation at all")
		}
		_, err = thread.AllocHost(1 << 40)
		wantClass(t, err, OutOfMemory)
		// After the error allocations work again.
		for _, m := range taken {
			if err := m.Close(thread); err != nil {
				t.Error(err)
			}
		}
		after, err := thread.MemInfo()
		if after != before {
			t.Errorf("%+v before and %+v after", before, after)
		}
		return err
	})
}

func TestRangesAreChecked(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 4096), allocHost(t, c, 4096)
	gone := allocDevice(t, c, 64)
	mustDo(t, c, gone.Close)
	before := countCalls(r.readStats())
	mustDo(t, c, func(thread *Thread) error {
		for name, test := range map[string]struct {
			dst, src Range
			want     error
		}{
			"past the end":           {m.Range(4090, 7), h.Range(0, 7), ErrRange},
			"from past the end":      {m.Range(4097, 0), h.Range(0, 0), ErrRange},
			"a sum that wraps":       {m.Range(64, math.MaxUint64), h.Range(64, math.MaxUint64), ErrRange},
			"sizes that differ":      {m.Range(0, 8), h.Range(0, 7), ErrRange},
			"source past the end":    {m.FullRange(), h.Range(1, 4096), ErrRange},
			"memory that was closed": {gone.FullRange(), h.Range(0, 64), ErrClosed},
			"no memory":              {Range{Size: 64}, h.Range(0, 64), ErrInvalid},
			"host to host":           {h.Range(0, 64), h.Range(64, 64), ErrInvalid},
		} {
			if err := s.Copy(thread, test.dst, test.src); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
			if err := s.CopyAll(thread, []Copy{{m.Range(0, 64), h.Range(0, 64)}, {test.dst, test.src}}); !errors.Is(err,
				test.want) {
				t.Errorf("%s, the second of two: %v, want %v", name, err, test.want)
			}
		}
		for name, err := range map[string]error{
			"fill": s.Fill(thread, m.Range(4096, 1), 0), "upload": thread.Upload(m.Range(0, 8), make([]byte, 7)),
			"download": thread.Download(make([]byte, 9), m.Range(0, 8)),
		} {
			if !errors.Is(err, ErrRange) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := thread.Upload(h.Range(0, 8), make([]byte, 8)); !errors.Is(err, ErrInvalid) {
			t.Errorf("an upload to the host: %v", err)
		}
		for name, alloc := range map[string]func() (*Memory, error){
			"device": func() (*Memory, error) { return thread.AllocDevice(0, HugeFirst) },
			"host":   func() (*Memory, error) { return thread.AllocHost(0) },
		} {
			if _, err := alloc(); !errors.Is(err, ErrInvalid) {
				t.Errorf("0 bytes on the %s: %v", name, err)
			}
		}
		return nil
	})
	if after := countCalls(r.readStats()); after != before {
		t.Errorf("the library saw %d of these", after-before)
	}
	if m.Bytes() != nil || gone.Bytes() != nil || len(h.Bytes()) != 4096 {
		t.Error("only open host memory can be read as bytes")
	}
	if m.Place() != OnDevice || h.Place() != OnHost || m.Address()%64 != 0 || h.Address()%64 != 0 || m.Size() != 4096 {
		t.Errorf("%v at %#x, %v at %#x", m.Place(), m.Address(), h.Place(), h.Address())
	}
}

// Memory of the engine is used and never freed, and its place and size are checked.
func TestLentMemory(t *testing.T) {
	for _, hidden := range [][]string{nil, {"aclrtPointerGetAttributes"}, {"aclrtMemGetAddressRange"}} {
		r := newRig(t, hidden...)
		c := r.newContext(ContextOptions{})
		m, h := allocDevice(t, c, 8192), allocHost(t, c, 64)
		mustDo(t, c, func(thread *Thread) error {
			lent, err := thread.WrapMemory(OnDevice, m.Address()+4096, 4096)
			if err != nil {
				return err
			}
			want, got := pattern(4096, 1), make([]byte, 4096)
			if err := errors.Join(thread.Upload(lent.FullRange(), want), thread.Download(got, m.Range(4096, 4096))); err != nil {
				return err
			}
			wantBytes(t, got, want, "lent memory")
			if r.lib.HasSymbol("aclrtPointerGetAttributes") {
				for name, lend := range map[string]func() (*Memory, error){
					"host as device": func() (*Memory, error) { return thread.WrapMemory(OnDevice, h.Address(), 64) },
					"device as host": func() (*Memory, error) { return thread.WrapMemory(OnHost, m.Address(), 64) },
					"nobody's": func() (*Memory, error) {
						return thread.WrapMemory(OnHost, uintptr(unsafe.Pointer(&want[0])), 64)
					},
				} {
					if _, err := lend(); !errors.Is(err, ErrInvalid) {
						t.Errorf("%s: %v", name, err)
					}
				}
				if _, err := thread.WrapMemory(OnHost, h.Address(), 64); err != nil {
					t.Error(err)
				}
				if r.lib.HasSymbol("aclrtMemGetAddressRange") {
					if _, err := thread.WrapMemory(OnDevice, m.Address(), 1<<20); !errors.Is(err, ErrRange) {
						t.Errorf("more than was allocated: %v", err)
					}
				}
			}
			if _, err := thread.WrapMemory(OnDevice, 0, 64); !errors.Is(err, ErrInvalid) {
				t.Errorf("memory at 0: %v", err)
			}
			return lent.Close(thread)
		})
	}
}

// newMapping maps memory of the program, as pools do.
func newMapping(t *testing.T, size int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	return b
}

func TestRegisteredMappings(t *testing.T) {
	for _, hidden := range [][]string{nil, {"aclrtHostRegister"}, {"aclrtHostRegister", "aclrtHostGetDevicePointer"}} {
		r := newRig(t, hidden...)
		c := r.newContext(ContextOptions{})
		const size = 1 << 20
		pool := newMapping(t, size)
		reg := mustMake(t, c, func(t *Thread) (*Memory, error) { return t.RegisterHost(pool) })
		if mapped := reg.DeviceAddress() != 0; mapped != r.lib.HasSymbol("aclrtHostGetDevicePointer") {
			t.Errorf("without %v: mapped at %#x", hidden, reg.DeviceAddress())
		}
		s, m := newStream(t, c, StreamOptions{}), allocDevice(t, c, size)
		want := pattern(size, 9)
		copy(pool, want)
		mustDo(t, c, func(thread *Thread) error {
			if _, err := thread.RegisterHost(pool); !errors.Is(err, Bug) || err.(*Error).Code != 507910 {
				t.Errorf("registered twice: %v", err)
			}
			return s.Copy(thread, m.FullRange(), reg.FullRange())
		})
		if err := awaitSettled(t, c, s); err != nil {
			t.Fatal(err)
		}
		clear(pool)
		mustDo(t, c, func(t *Thread) error { return s.Copy(t, reg.FullRange(), m.FullRange()) })
		if err := awaitSettled(t, c, s); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, reg.Bytes(), want, "the mapping")
		mustDo(t, c, reg.Close)
		mustDo(t, c, func(thread *Thread) error {
			if _, err := thread.RegisterHost(pool[8:]); !errors.Is(err, ErrInvalid) {
				t.Errorf("at no multiple of 4096: %v", err)
			}
			if _, err := thread.RegisterHost(nil); !errors.Is(err, ErrInvalid) {
				t.Errorf("nothing: %v", err)
			}
			return nil
		})
	}
}

func TestRegisterOnAnOldLibrary(t *testing.T) {
	r := newRig(t, "aclrtHostRegister", "aclrtHostRegisterV2")
	c := r.newContext(ContextOptions{})
	pool := newMapping(t, 4096)
	if err := c.Do(func(t *Thread) error { _, err := t.RegisterHost(pool); return err }); !errors.Is(err, Unsupported) {
		t.Errorf("got %v, want Unsupported", err)
	}
}
