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
	t         *testing.T
	lib       *Library
	undo      []func() error
	failed    error
	requested int        // completions that were requested
	queue     chan error // their outcomes
	outcomes  []error    // outcomes that were received
}

// runStep runs f unless an earlier step has failed.
func (y *trial) runStep(f func() error) {
	if y.failed == nil {
		y.failed = f()
	}
}

// deferClose registers the close of an object that a step has made. A close that fails is repeated once, because the
// object is still open.
func (y *trial) deferClose(give func() error) {
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

// closeAfter closes all objects but the first few, in reverse order.
func (y *trial) closeAfter(keep int) {
	for len(y.undo) > keep {
		last := len(y.undo) - 1
		y.failed = errors.Join(y.failed, y.undo[last]())
		y.undo = y.undo[:last]
	}
}

func (y *trial) runTrial(hidden []string) error {
	y.queue = make(chan error, 100)
	y.runStep(func() (err error) {
		if y.lib, err = Open(Options{Library: softnpuPath, hiddenSymbols: hidden}); err == nil {
			y.deferClose(y.lib.Close)
		}
		return err
	})
	y.runStep(y.queryDevices)
	y.runStep(func() error { return y.useContext(ContextOptions{Primary: true}, StreamOptions{}) })
	y.closeAfter(1)
	y.runStep(func() error {
		return y.useContext(ContextOptions{Device: 1}, StreamOptions{StopOnFailure: y.lib.HasSymbol("aclrtSetStreamFailureMode")})
	})
	y.closeAfter(0)
	for len(y.queue) > 0 {
		y.outcomes = append(y.outcomes, <-y.queue)
	}
	if len(y.outcomes) != y.requested {
		y.t.Errorf("%d completions were asked for, %d outcomes came", y.requested, len(y.outcomes))
	}
	// The abort at the end may be sooner than the completions before it.
	told := slices.DeleteFunc(y.outcomes, func(err error) bool { return errors.Is(err, Cancelled) })
	return errors.Join(append(told, y.failed)...)
}

// ignoreUnsupported returns nil for an error of class Unsupported.
func ignoreUnsupported(err error) error {
	if errors.Is(err, Unsupported) {
		return nil
	}
	return err
}

func (y *trial) queryDevices() error {
	_, count := y.lib.DeviceCount()
	_, physical := y.lib.PhysicalID(0)
	_, reach := y.lib.CanAccessPeer(0, 1)
	_, place := y.lib.SuperPod(0)
	return errors.Join(count, ignoreUnsupported(physical), ignoreUnsupported(reach), ignoreUnsupported(place))
}

func (y *trial) useContext(o ContextOptions, so StreamOptions) error {
	c, err := y.lib.NewContext(o)
	if err != nil {
		return err
	}
	y.deferClose(c.Close)
	streams, events := y.countLive(c)
	// Just before the context is closed, because that would also destroy forgotten objects.
	y.undo = append(y.undo, func() error {
		if s, e := y.countLive(c); s != streams || e != events {
			y.t.Errorf("%d streams and %d events are left in the context, of %d and %d", s, e, streams, events)
		}
		return nil
	})
	keep := func(made interface{ Close(*Thread) error }) { y.deferClose(func() error { return c.Do(made.Close) }) }
	const size = 64 << 10
	pool := newMapping(y.t, size)
	var first, second *Stream
	var m, h, reg *Memory
	var start, end *Event
	for _, make := range []func(*Thread) error{
		func(t *Thread) error { _, err := t.MemInfo(); return err },
		func(t *Thread) (err error) { m, err = t.AllocDevice(size, HugeFirst); return keepIfMade(keep, m, err) },
		func(t *Thread) error {
			e, err := t.Export(m)
			if err := ignoreUnsupported(keepIfMade(keep, e, err)); err != nil || e == nil {
				return err
			}
			me, err := t.ProcessNumber()
			return ignoreUnsupported(errors.Join(err, e.AdmitProcess(t, me)))
		},
		func(t *Thread) (err error) { h, err = t.AllocHost(size); return keepIfMade(keep, h, err) },
		func(t *Thread) (err error) {
			reg, err = t.RegisterHost(pool)
			return ignoreUnsupported(keepIfMade(keep, reg, err))
		},
		func(t *Thread) error {
			lent, err := t.WrapMemory(OnDevice, m.Address(), size)
			return keepIfMade(keep, lent, err)
		},
		func(t *Thread) (err error) { first, err = t.NewStream(so); return keepIfMade(keep, first, err) },
		func(t *Thread) (err error) {
			second, err = t.NewStream(StreamOptions{})
			return keepIfMade(keep, second, err)
		},
		func(t *Thread) (err error) {
			start, err = t.NewEvent(EventOptions{Timing: true})
			return keepIfMade(keep, start, err)
		},
		func(t *Thread) (err error) {
			end, err = t.NewEvent(EventOptions{Timing: true})
			return keepIfMade(keep, end, err)
		},
	} {
		if err := c.Do(make); err != nil {
			return err
		}
	}
	// Memory may be freed only when nothing uses it: from here on, the streams are idle or aborted, whatever fails.
	y.deferClose(func() error {
		err := c.Do(func(t *Thread) error { return errors.Join(endWork(t, first), endWork(t, second)) })
		for err == nil && len(y.outcomes) < y.requested {
			y.outcomes = append(y.outcomes, <-y.queue)
		}
		return err
	})
	for range 2 {
		if err := c.Do(func(t *Thread) error { return y.runRound(t, first, second, start, end, m, h) }); err != nil {
			return err
		}
	}
	return c.Do(func(t *Thread) error {
		if err := errors.Join(first.Synchronize(t, longEnough), second.Synchronize(t, longEnough)); err != nil {
			return err
		}
		_, elapsed := end.ElapsedSince(t, start)
		return errors.Join(ignoreUnsupported(elapsed), first.Failure(t), ignoreUnsupported(second.Abort(t)))
	})
}

// countLive counts the streams and events that exist, without the spare events of the context.
func (y *trial) countLive(c *Context) (streams, events int64) {
	stats, err := findNPU(y.t).Stats()
	if err != nil {
		y.t.Fatal(err)
	}
	c.spareEvents.mu.Lock()
	defer c.spareEvents.mu.Unlock()
	return stats["live.streams"], stats["live.events"] - int64(len(c.spareEvents.events)+len(c.spareEvents.stuck))
}

func (y *trial) runRound(t *Thread, first, second *Stream, start, end *Event, m, h *Memory) error {
	half := m.Size() / 2
	for _, put := range []func() error{
		func() error { return first.RecordEvent(t, start) },
		func() error { return first.Fill(t, m.FullRange(), 1) },
		func() error {
			return first.CopyAll(t, []Copy{{m.Range(0, half), h.Range(half, half)}, {m.Range(half, half), h.Range(0, half)}})
		},
		func() error { return first.Copy(t, m.Range(0, 64), h.Range(0, 64)) },
		func() error { return first.RecordEvent(t, end) },
		func() error { return second.WaitEvent(t, end) },
		func() error { return second.Copy(t, h.Range(0, 64), m.Range(0, 64)) },
		func() error { return y.requestCompletion(t, first) },
		func() error { return y.requestCompletion(t, second) },
		func() error { _, err := end.IsComplete(t); return err },
		func() error { return ignoreUnsupported(end.Synchronize(t, longEnough)) },
		func() error { return t.Upload(m.Range(0, 8), make([]byte, 8)) },
		func() error { return t.Download(make([]byte, 8), m.Range(0, 8)) },
	} {
		if err := put(); err != nil {
			return err
		}
	}
	return nil
}

func (y *trial) requestCompletion(t *Thread, s *Stream) error {
	err := s.Notify(t, func(err error) { y.queue <- err })
	if err == nil {
		y.requested++
	}
	return err
}

func keepIfMade(keep func(interface{ Close(*Thread) error }), made interface{ Close(*Thread) error }, err error) error {
	if err == nil {
		keep(made)
	}
	return err
}

// endWork waits for the stream's work, or aborts the stream. With an old library only the wait is possible.
func endWork(t *Thread, s *Stream) error {
	if s.Synchronize(t, longEnough) == nil {
		return nil
	}
	return ignoreUnsupported(s.Abort(t))
}

// sweptLibraries lists the functions that libraries of several ages lack.
var sweptLibraries = map[string][]string{
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
	for _, s := range listSymbols() {
		if s.Required {
			continue
		}
		r := &rig{t: t, npu: npu, left: runCommand(t, npu, "leaks")}
		if err := (&trial{t: t}).runTrial([]string{s.Name}); err != nil {
			t.Errorf("without %s: %v", s.Name, err)
		}
		r.checkClean()
	}
}

// Every call fails once, at the first, the second and the last use: every request has exactly one outcome, the failure
// is reported with its code and function, and nothing is left on the device.
func TestEachCallFailingOnce(t *testing.T) {
	npu := findNPU(t)
	// Calls with failures that are not reported: texts of logs and errors, and calls that are repeated later.
	silent := []string{"aclrtGetVersion", "aclsysGetVersionStr", "aclrtGetSocName", "aclGetRecentErrMsg",
		"aclrtDestroyEvent"}
	for age, hidden := range sweptLibraries {
		r := &rig{t: t, npu: npu, left: runCommand(t, npu, "leaks")}
		runCommand(t, npu, "forget")
		if err := (&trial{t: t}).runTrial(hidden); err != nil {
			t.Fatalf("%s: without a fault: %v", age, err)
		}
		uses := r.readStats()
		r.checkClean()
		for _, s := range listSymbols() {
			n := uses["calls."+s.Name]
			for _, nth := range slices.Compact([]int64{1, min(2, n), n}) {
				if n == 0 {
					break
				}
				t.Run(fmt.Sprintf("%s/%s/%d of %d", age, s.Name, nth, n), func(t *testing.T) {
					r.t, r.left = t, runCommand(t, npu, "leaks")
					r.runCommand(fmt.Sprintf("faults call:sym=%s,nth=%d,count=1,code=507000,msg=injected", s.Name, nth))
					err := (&trial{t: t}).runTrial(hidden)
					var failed *Error
					switch {
					case errors.As(err, &failed):
						if failed.Code != 507000 || failed.Call != s.Name {
							t.Errorf("told as %v", err)
						}
					case nth == 1 && !slices.Contains(silent, s.Name):
						t.Errorf("nobody was told: %v", err)
					}
					r.checkClean()
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
			r := &rig{t: t, npu: npu, left: runCommand(t, npu, "leaks")}
			r.runCommand(fmt.Sprintf("faults call:sym=%s,nth=%d,count=1,code=207001", symbol, nth))
			err := (&trial{t: t}).runTrial(nil)
			r.checkClean()
			if !errors.Is(err, OutOfMemory) {
				if nth == 1 {
					t.Errorf("%s ran out: %v", symbol, err)
				}
				break
			}
		}
	}
}

func runCommand(t *testing.T, npu interface{ Control(string) (string, error) }, command string) string {
	t.Helper()
	reply, err := npu.Control(command)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
