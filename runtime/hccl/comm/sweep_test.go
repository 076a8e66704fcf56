//go:build cgo && linux

package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

// runTrial opens a library, uses every part once, and frees everything whatever fails. The faults are in HCCL, so calls
// of AscendCL must succeed.
func (r *rig) runTrial(hidden []string) error {
	r.t.Helper()
	lib, err := Open(Options{Library: softnpuPath, hiddenSymbols: hidden})
	if err != nil {
		return err
	}
	var ends [2]*endpoint
	for i := range ends {
		ends[i] = r.newBareEndpoint(lib, acl.DeviceID(i))
	}
	ends[0].peer, ends[1].peer = ends[1].poolAddresses(), ends[0].poolAddresses()
	// Both ends finish each step before the next, so that no end waits for a peer that has failed.
	steps := []func(e *endpoint, at acl.CurrentThread, rank uint32) error{
		func(e *endpoint, at acl.CurrentThread, _ uint32) error {
			return e.addRegion(at, acl.OnDevice, e.device)
		},
		func(e *endpoint, at acl.CurrentThread, _ uint32) error { return e.addRegion(at, acl.OnHost, e.host) },
		func(e *endpoint, at acl.CurrentThread, rank uint32) (err error) {
			e.comm, err = lib.NewComm(at, commOptions(r.t, RoCE, rank, "trial"))
			return err
		},
		func(e *endpoint, at acl.CurrentThread, _ uint32) error { return e.comm.Bind(at, e.regions...) },
		func(e *endpoint, at acl.CurrentThread, _ uint32) error {
			err := e.comm.Prepare(at, longEnough, 2)
			if err != nil { // once more, because the peer waits
				err = errors.Join(err, e.comm.Prepare(at, longEnough, 2))
			}
			return err
		},
	}
	var failed error
	for _, step := range steps {
		if failed == nil {
			failed = runAtBoth(ends, step)
		}
	}
	for range 2 {
		for _, e := range ends {
			if failed == nil {
				failed = e.moveBytes()
			}
		}
	}
	for _, e := range ends {
		failed = errors.Join(failed, e.closeAll())
	}
	return errors.Join(failed, lib.Close())
}

// newBareEndpoint makes an end without objects of HCCL, which closeAll closes.
func (r *rig) newBareEndpoint(lib *Library, id acl.DeviceID) *endpoint {
	r.t.Helper()
	e := &endpoint{rig: &rig{t: r.t, npu: r.npu, acl: r.acl, lib: lib}}
	var err error
	if e.ctx, err = r.acl.NewContext(acl.ContextOptions{Device: id, CloseTimeout: longEnough}); err != nil {
		r.t.Fatal(err)
	}
	e.mustDo(func(t *acl.Thread) (err error) { e.device, err = t.AllocDevice(poolSize, acl.HugeFirst); return err })
	e.mustDo(func(t *acl.Thread) (err error) { e.host, err = t.AllocHost(poolSize); return err })
	e.mustDo(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
	return e
}

// runAtBoth carries out a step at both ends at once.
func runAtBoth(ends [2]*endpoint, step func(e *endpoint, at acl.CurrentThread, rank uint32) error) error {
	errs := runForBoth(ends, func(e *endpoint, rank uint32) error {
		return e.ctx.DoBlocking(func(at *acl.BlockingThread) error { return step(e, at, rank) })
	})
	return errors.Join(errs[:]...)
}

func (e *endpoint) addRegion(at acl.CurrentThread, place acl.Place, m *acl.Memory) error {
	r, err := e.lib.RegisterMemory(at, Memory{place, m.Address(), m.Size()})
	if err == nil {
		e.regions = append(e.regions, r)
	}
	return err
}

// moveBytes puts and gets a batch, on the stream of the communicator.
func (e *endpoint) moveBytes() error {
	descs := []Desc{{e.device.Address(), e.peer.Device, 64}, {e.device.Address() + 64, e.peer.Host, 64}}
	if err := e.putBatch(descs...); err != nil {
		return err
	}
	if err := e.getBatch(descs...); err != nil {
		return err
	}
	return e.ctx.DoBlocking(func(at *acl.BlockingThread) error {
		if err := e.comm.AsyncError(at); !errors.Is(err, acl.Unsupported) {
			return err
		}
		return nil
	})
}

// closeAll closes the end's objects. A close that fails is tried once more, because the object is still open.
func (e *endpoint) closeAll() error {
	var told error
	close := func(f func(acl.CurrentThread) error) {
		for range 2 {
			err := e.ctx.DoBlocking(func(at *acl.BlockingThread) error { return f(at) })
			if err == nil {
				return
			}
			told = errors.Join(told, err)
		}
		told = errors.Join(told, errors.New("not given back at the second try either"))
	}
	if e.comm != nil {
		close(e.comm.Close)
	}
	for _, r := range e.regions {
		close(r.Close)
	}
	for _, give := range []func(*acl.Thread) error{e.stream.Close, e.device.Close, e.host.Close} {
		e.mustDo(give)
	}
	return errors.Join(told, e.ctx.Close())
}

// Without any single optional symbol everything works, by a fallback.
func TestEachOptionalSymbolIsDoneWithout(t *testing.T) {
	r := newRig(t)
	for name, hidden := range librariesBySequence {
		needed := map[string][]string{"global": newerSymbols, "exchange": olderSymbols}[name]
		for _, symbol := range listSymbols() {
			if slices.Contains(hidden, symbol.Name) || slices.Contains(needed, symbol.Name) ||
				slices.Contains([]string{"HcclCommDestroy", "HcclBatchPut", "HcclBatchGet"}, symbol.Name) {
				continue
			}
			if err := r.runTrial(append([]string{symbol.Name}, hidden...)); err != nil {
				t.Errorf("%s, without %s: %v", name, symbol.Name, err)
			}
			r.checkClean()
		}
	}
}

// Every call fails once, at its first, second and last use: the failure is reported with its code and function, and
// nothing is left.
func TestEachCallFailingOnce(t *testing.T) {
	r := newRig(t)
	// Calls with failures that are not reported: calls for texts, and calls whose work the destruction of the
	// communicator repeats.
	silent := []string{"HcclGetErrorString", "HcclGetCommConfigCapability", "HcclDisableMemAccess", "HcclDeregisterMem",
		"HcclCommDestroy"}
	for name, hidden := range librariesBySequence {
		r.runCommand("forget")
		if err := r.runTrial(hidden); err != nil {
			t.Fatalf("%s: without a fault: %v", name, err)
		}
		uses := map[string]int64{}
		for _, symbol := range listSymbols() {
			uses[symbol.Name] = r.readStat("calls." + symbol.Name)
		}
		r.checkClean()
		for symbol, n := range uses {
			code := 8
			if symbol == "HcclCommDestroy" {
				code = 20 // any other code leaves the communicator forever: see TestDestroyThatFailsIsNotRepeated
			}
			for _, nth := range slices.Compact([]int64{1, min(2, n), n}) {
				if n == 0 {
					break
				}
				t.Run(fmt.Sprintf("%s/%s/%d of %d", name, symbol, nth, n), func(t *testing.T) {
					r.t = t
					r.runCommand(fmt.Sprintf("faults call:sym=%s,nth=%d,count=1,code=%d,msg=injected", symbol, nth, code))
					err := r.runTrial(hidden)
					var failed *Error
					switch {
					case slices.Contains(silent, symbol):
						if err != nil {
							t.Errorf("got %v", err)
						}
					case !errors.As(err, &failed) || failed.Code != 8 || failed.Call != symbol || failed.Message != "injected":
						t.Errorf("told as %v", err)
					}
					r.checkClean()
				})
			}
		}
		r.t = t
	}
}

// Memory runs out at every call that may allocate: each time an outcome, and nothing is lost.
func TestEachAllocationRunningOut(t *testing.T) {
	r := newRig(t)
	for name, hidden := range librariesBySequence {
		for _, code := range []int{3, 24} {
			for _, symbol := range []string{
				"HcclRegisterGlobalMem", "HcclCommInitClusterInfoMemConfig", "HcclCommBindMem", "HcclBatchPut",
				"HcclCommInitClusterInfoConfig", "HcclRegisterMem", "HcclBatchGet",
			} {
				if slices.Contains(hidden, symbol) || name == "global" &&
					(symbol == "HcclRegisterMem" || symbol == "HcclCommInitClusterInfoConfig") {
					continue
				}
				r.runCommand(fmt.Sprintf("faults call:sym=%s,nth=1,count=1,code=%d", symbol, code))
				if err := r.runTrial(hidden); !errors.Is(err, acl.OutOfMemory) {
					t.Errorf("%s ran out with %d: %v", symbol, code, err)
				}
				r.checkClean()
			}
		}
	}
}
