//go:build cgo && linux

package npu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
)

// useDevice uses a device: a node copies, and then another node scatters pages that it has read. The failures are
// returned after everything was closed; a close that fails is repeated once.
func useDevice(t *testing.T, r *rig) (failed error) {
	d, err := Open(r.lib, Options{CopyStreams: 2, ScatterStreams: 1})
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, closeTwice(t, d.Close)) }()
	return errors.Join(useForCopies(t, d), useForScatters(t, d))
}

// closeTwice closes something, twice if the first attempt fails.
func closeTwice(t *testing.T, give func() error) error {
	t.Helper()
	first := give()
	if first == nil {
		return nil
	}
	if err := give(); err != nil {
		t.Errorf("given back neither at once (%v) nor at the second try: %v", first, err)
	}
	return first
}

func useForCopies(t *testing.T, d *Device) (failed error) {
	b := newEventBox()
	opened, err := d.Open(t.Context(), testEnv(b, true))
	if err != nil {
		return err
	}
	defer func() {
		failed = errors.Join(failed, closeTwice(t, func() error { return opened.Close(context.Background()) }))
	}()
	p := opened.(*nodeMemory)
	const copies = 4
	fine := true
	for i := range uint32(copies) {
		err := d.context.Do(func(t *acl.Thread) error {
			return t.Upload(p.pageRange(copyPair(i, testPageBytes).From), pattern(testPageBytes, i))
		})
		failed = errors.Join(failed, err)
		p.StartCopy(&effects.Copy{Corr: effects.Corr(i), Pairs: []effects.CopyPair{copyPair(i, testPageBytes)}})
		fine = fine && err == nil
	}
	ends := map[effects.Corr]effects.Code{}
	for open := copies; open > 0; {
		switch ev := b.nextEvent(t).(type) {
		case *effects.CopyDone:
			if _, twice := ends[ev.Corr]; twice {
				t.Errorf("two ends: %+v", ev)
			}
			ends[ev.Corr] = ev.Code
			if ev.Settled {
				open--
			}
		case *effects.Settled:
			if ends[ev.Corr] != effects.Faulted {
				t.Errorf("settled although not open: %+v", ev)
			}
			open--
		}
	}
	for corr, code := range ends {
		if code != effects.OK {
			failed = errors.Join(failed, fmt.Errorf("copy %d: %v", corr, code))
		} else if fine {
			p.wantCopied(t, copyPair(uint32(corr), testPageBytes))
		}
	}
	return failed
}

func useForScatters(t *testing.T, d *Device) (failed error) {
	opened, err := d.Open(t.Context(), testEnv(newEventBox(), false))
	if err != nil {
		return err
	}
	defer func() {
		failed = errors.Join(failed, closeTwice(t, func() error { return opened.Close(context.Background()) }))
	}()
	p := opened.(*nodeMemory)
	page := effects.Page{Index: 2, Length: testPageBytes}
	var engine *acl.Memory
	var stream *acl.Stream
	err = d.context.Do(func(t *acl.Thread) (err error) {
		if engine, err = t.AllocDevice(testPageBytes, acl.HugeFirst); err != nil {
			return err
		}
		if stream, err = t.NewStream(acl.StreamOptions{}); err != nil {
			return err
		}
		if err := stream.Fill(t, p.pageRange(page), 7); err != nil {
			return err
		}
		if err := d.RecordRead(t, stream, p.pageRegions(page)); err != nil {
			return err
		}
		return stream.Synchronize(t, longEnough)
	})
	if err == nil {
		err = d.ScatterFunc(func(t *acl.Thread, s *acl.Stream, _ int, chunks []acl.Range) error {
			return s.Copy(t, engine.FullRange(), chunks[0])
		})(t.Context(), 0, p.devicePages(page))
	}
	failed = errors.Join(failed, err)
	if stream != nil {
		failed = errors.Join(failed, closeTwice(t, func() error { return d.context.Do(stream.Close) }))
	}
	if engine != nil {
		failed = errors.Join(failed, closeTwice(t, func() error { return d.context.Do(engine.Close) }))
	}
	return failed
}

// Every call of AscendCL fails once, at its first, second and last use. Each time the failure is reported, every copy
// has its completion, and nothing is left.
func TestEachCallFailingOnce(t *testing.T) {
	// Calls with failures that are not reported: calls for texts of errors, repeated calls, and calls with a fallback.
	silent := []string{"aclGetRecentErrMsg", "aclrtDestroyEvent", "aclrtQueryEventStatus",
		"aclrtSynchronizeStreamWithTimeout"}
	for age, hidden := range map[string][]string{"new": nil, "old": olderSymbols} {
		t.Run(age, func(t *testing.T) {
			r := newRig(t, hidden...)
			r.runCommand("forget")
			if err := useDevice(t, r); err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			uses, err := r.npu.Stats()
			if err != nil {
				t.Fatal(err)
			}
			for name, n := range uses {
				symbol, ok := strings.CutPrefix(name, "calls.")
				if !ok {
					continue
				}
				for _, nth := range slices.Compact([]int64{1, min(2, n), n}) {
					t.Run(fmt.Sprintf("%s/%d of %d", symbol, nth, n), func(t *testing.T) {
						r := &rig{t: t, npu: r.npu, lib: r.lib, left: r.left}
						r.runCommand(fmt.Sprintf("faults call:sym=%s,nth=%d,count=1,code=507000,msg=injected", symbol, nth))
						err := useDevice(t, r)
						// A copy's own failure is in the log only.
						told := errors.As(err, new(*acl.Error)) || strings.Contains(fmt.Sprint(err), "copy ")
						if !told && nth == 1 && !slices.Contains(silent, symbol) {
							t.Errorf("nobody was told: %v", err)
						}
						r.checkClean()
					})
				}
			}
		})
	}
}
