//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A trial uses every part of the binding once, and frees everything whatever fails.
type trial struct {
	t      *testing.T
	lib    *Library
	undo   []func() error
	failed error
	asked  int        // completions that were requested
	queue  chan error // their outcomes
	told   []error    // outcomes that were received
}

// step runs f unless an earlier step has failed.
func (y *trial) step(f func() error) {
	if y.failed == nil {
		y.failed = f()
	}
}

// later registers the close of an object that a step has made. A close that fails is repeated once, because the object
// is still open.
func (y *trial) later(give func() error) {
	y.undo = append(y.undo, func() error {
		first := give()
		if first == nil {
			return nil
		}
		if again := give(); again != nil {
			return fmt.Errorf("given back neither at once (%w) nor at the second try: %w", first, again)
		}
		return first
	})
}

// unwind closes all objects but the first few, in reverse order.
func (y *trial) unwind(keep int) {
	for len(y.undo) > keep {
		last := len(y.undo) - 1
		y.failed = errors.Join(y.failed, y.undo[last]())
		y.undo = y.undo[:last]
	}
}

func (y *trial) run(hidden []string) error {
	y.queue = make(chan error, 100)
	y.step(func() (err error) {
		if y.lib, err = Open(Options{Library: softnpuPath, hidden: hidden}); err == nil {
			y.later(y.lib.Close)
		}
		return err
	})
	y.step(y.devices)
	y.step(func() error { return y.work(ContextOptions{Primary: true}, StreamOptions{}) })
	y.unwind(1)
	y.step(func() error {
		return y.work(ContextOptions{Device: 1}, StreamOptions{StopOnFailure: y.lib.Has("aclrtSetStreamFailureMode")})
	})
	y.unwind(0)
	for len(y.queue) > 0 {
		y.told = append(y.told, <-y.queue)
	}
	if len(y.told) != y.asked {
		y.t.Errorf("%d completions were asked for, %d outcomes came", y.asked, len(y.told))
	}
	// The abort at the end may be sooner than the completions before it.
	told := slices.DeleteFunc(y.told, func(err error) bool { return errors.Is(err, Cancelled) })
	return errors.Join(append(told, y.failed)...)
}

// optional returns nil for an error of class Unsupported.
func optional(err error) error {
	if errors.Is(err, Unsupported) {
		return nil
	}
	return err
}

func (y *trial) devices() error {
	_, count := y.lib.DeviceCount()
	_, physical := y.lib.PhysicalID(0)
	_, reach := y.lib.CanAccessPeer(0, 1)
	_, place := y.lib.SuperPod(0)
	return errors.Join(count, optional(physical), optional(reach), optional(place))
}

func (y *trial) work(o ContextOptions, so StreamOptions) error {
	c, err := y.lib.NewContext(o)
	if err != nil {
		return err
	}
	y.later(c.Close)
	streams, events := y.census(c)
	// Just before the context is closed, because that would also destroy forgotten objects.
	y.undo = append(y.undo, func() error {
		if s, e := y.census(c); s != streams || e != events {
			y.t.Errorf("%d streams and %d events are left in the context, of %d and %d", s, e, streams, events)
		}
		return nil
	})
	keep := func(made interface{ Close(*Thread) error }) { y.later(func() error { return c.Do(made.Close) }) }
	const size = 64 << 10
	pool := mapping(y.t, size)
	var first, second *Stream
	var m, h, reg *Memory
	var start, end *Event
	for _, make := range []func(*Thread) error{
		func(t *Thread) error { _, err := t.MemInfo(); return err },
		func(t *Thread) (err error) { m, err = t.AllocDevice(size, HugeFirst); return kept(keep, m, err) },
		func(t *Thread) error {
			e, err := t.Export(m)
			if err := optional(kept(keep, e, err)); err != nil || e == nil {
				return err
			}
			me, err := t.Process()
			return optional(errors.Join(err, e.Admit(t, me)))
		},
		func(t *Thread) (err error) { h, err = t.AllocHost(size); return kept(keep, h, err) },
		func(t *Thread) (err error) { reg, err = t.RegisterHost(pool); return optional(kept(keep, reg, err)) },
		func(t *Thread) error { lent, err := t.Lent(OnDevice, m.Address(), size); return kept(keep, lent, err) },
		func(t *Thread) (err error) { first, err = t.NewStream(so); return kept(keep, first, err) },
		func(t *Thread) (err error) {
			second, err = t.NewStream(StreamOptions{})
			return kept(keep, second, err)
		},
		func(t *Thread) (err error) {
			start, err = t.NewEvent(EventOptions{Timing: true})
			return kept(keep, start, err)
		},
		func(t *Thread) (err error) {
			end, err = t.NewEvent(EventOptions{Timing: true})
			return kept(keep, end, err)
		},
	} {
		if err := c.Do(make); err != nil {
			return err
		}
	}
	// Memory may be freed only when nothing uses it: from here on, the streams are idle or aborted, whatever fails.
	y.later(func() error {
		err := c.Do(func(t *Thread) error { return errors.Join(quieten(t, first), quieten(t, second)) })
		for err == nil && len(y.told) < y.asked {
			y.told = append(y.told, <-y.queue)
		}
		return err
	})
	for range 2 {
		if err := c.Do(func(t *Thread) error { return y.round(t, first, second, start, end, m, h) }); err != nil {
			return err
		}
	}
	return c.Do(func(t *Thread) error {
		if err := errors.Join(first.Synchronize(t, longEnough), second.Synchronize(t, longEnough)); err != nil {
			return err
		}
		_, elapsed := end.Elapsed(t, start)
		return errors.Join(optional(elapsed), first.Failure(t), optional(second.Abort(t)))
	})
}

// census counts the streams and events that exist, without the spare events of the context.
func (y *trial) census(c *Context) (streams, events int64) {
	stats, err := findNPU(y.t).Stats()
	if err != nil {
		y.t.Fatal(err)
	}
	c.spares.mu.Lock()
	defer c.spares.mu.Unlock()
	return stats["live.streams"], stats["live.events"] - int64(len(c.spares.events)+len(c.spares.stuck))
}

func (y *trial) round(t *Thread, first, second *Stream, start, end *Event, m, h *Memory) error {
	half := m.Size() / 2
	for _, put := range []func() error{
		func() error { return first.Record(t, start) },
		func() error { return first.Fill(t, m.All(), 1) },
		func() error {
			return first.CopyAll(t, []Copy{{m.Range(0, half), h.Range(half, half)}, {m.Range(half, half), h.Range(0, half)}})
		},
		func() error { return first.Copy(t, m.Range(0, 64), h.Range(0, 64)) },
		func() error { return first.Record(t, end) },
		func() error { return second.Wait(t, end) },
		func() error { return second.Copy(t, h.Range(0, 64), m.Range(0, 64)) },
		func() error { return y.ask(t, first) },
		func() error { return y.ask(t, second) },
		func() error { _, err := end.Complete(t); return err },
		func() error { return optional(end.Synchronize(t, longEnough)) },
		func() error { return t.Upload(m.Range(0, 8), make([]byte, 8)) },
		func() error { return t.Download(make([]byte, 8), m.Range(0, 8)) },
	} {
		if err := put(); err != nil {
			return err
		}
	}
	return nil
}

func (y *trial) ask(t *Thread, s *Stream) error {
	err := s.Notify(t, func(err error) { y.queue <- err })
	if err == nil {
		y.asked++
	}
	return err
}

func kept(keep func(interface{ Close(*Thread) error }), made interface{ Close(*Thread) error }, err error) error {
	if err == nil {
		keep(made)
	}
	return err
}

// quieten waits for the stream's work, or aborts the stream. With an old library only the wait is possible.
func quieten(t *Thread, s *Stream) error {
	if s.Synchronize(t, longEnough) == nil {
		return nil
	}
	return optional(s.Abort(t))
}

// sweepsThrough lists the functions that libraries of several ages lack.
var sweepsThrough = map[string][]string{
	"new": nil,
	"old": {
		"aclrtSynchronizeEventWithTimeout", "aclrtStreamQuery", "aclrtStreamAbort", "aclrtDestroyStreamForce",
		"aclrtSetStreamFailureMode", "aclrtCreateEventExWithFlag", "aclrtMemcpyBatchAsync", "aclrtHostRegister",
		"aclrtMemGetAddressRange",
	},
}

// Without any single optional symbol everything works, or fails as Unsupported.
func TestEachOptionalSymbolIsDoneWithout(t *testing.T) {
	npu := findNPU(t)
	for _, s := range symbols() {
		if s.Required {
			continue
		}
		r := &rig{t: t, npu: npu, left: control(t, npu, "leaks")}
		if err := (&trial{t: t}).run([]string{s.Name}); err != nil {
			t.Errorf("without %s: %v", s.Name, err)
		}
		r.clean()
	}
}

// Every call fails once, at the first, the second and the last use: every request has exactly one outcome, the failure
// is reported with its code and function, and nothing is left on the device.
func TestEachCallFailingOnce(t *testing.T) {
	npu := findNPU(t)
	// Calls with failures that are not reported: texts of logs and errors, and calls that are repeated later.
	silent := []string{"aclrtGetVersion", "aclsysGetVersionStr", "aclrtGetSocName", "aclGetRecentErrMsg",
		"aclrtDestroyEvent"}
	for age, hidden := range sweepsThrough {
		r := &rig{t: t, npu: npu, left: control(t, npu, "leaks")}
		control(t, npu, "forget")
		if err := (&trial{t: t}).run(hidden); err != nil {
			t.Fatalf("%s: without a fault: %v", age, err)
		}
		uses := r.stats()
		r.clean()
		for _, s := range symbols() {
			n := uses["calls."+s.Name]
			for _, nth := range slices.Compact([]int64{1, min(2, n), n}) {
				if n == 0 {
					break
				}
				t.Run(fmt.Sprintf("%s/%s/%d of %d", age, s.Name, nth, n), func(t *testing.T) {
					r.t, r.left = t, control(t, npu, "leaks")
					r.control(fmt.Sprintf("faults call:sym=%s,nth=%d,count=1,code=507000,msg=injected", s.Name, nth))
					err := (&trial{t: t}).run(hidden)
					var failed *Error
					switch {
					case errors.As(err, &failed):
						if failed.Code != 507000 || failed.Call != s.Name {
							t.Errorf("told as %v", err)
						}
					case nth == 1 && !slices.Contains(silent, s.Name):
						t.Errorf("nobody was told: %v", err)
					}
					r.clean()
				})
			}
		}
	}
}

// Memory runs out at every allocation in turn: an outcome each time, and nothing is lost.
func TestEachAllocationRunningOut(t *testing.T) {
	npu := findNPU(t)
	for _, symbol := range []string{"aclrtMalloc", "aclrtMallocHost", "aclrtCreateEventExWithFlag",
		"aclrtCreateStreamWithConfig", "aclrtCreateContext"} {
		for nth := 1; ; nth++ {
			r := &rig{t: t, npu: npu, left: control(t, npu, "leaks")}
			r.control(fmt.Sprintf("faults call:sym=%s,nth=%d,count=1,code=207001", symbol, nth))
			err := (&trial{t: t}).run(nil)
			r.clean()
			if !errors.Is(err, OutOfMemory) {
				if nth == 1 {
					t.Errorf("%s ran out: %v", symbol, err)
				}
				break
			}
		}
	}
}

func control(t *testing.T, npu interface{ Control(string) (string, error) }, command string) string {
	t.Helper()
	reply, err := npu.Control(command)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
