//go:build cgo && linux

package comm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

// Root info replaces a rank table, with and without the function that takes a configuration.
func TestRootInfo(t *testing.T) {
	for name, hidden := range map[string][]string{
		"with a name": newerSymbols, "without": append(slices.Clone(newerSymbols), "HcclCommInitRootInfoConfig"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hidden...)
			ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
			var root []byte
			mustDoBlocking(t, ends[0].ctx, func(at acl.CurrentThread) (err error) { root, err = r.lib.RootInfo(at); return err })
			for rank, err := range runForBoth(ends, func(e *endpoint, rank uint32) error {
				return e.joinComm(CommOptions{Name: "rooted", Rank: rank, RootInfo: root})
			}) {
				if err != nil {
					t.Fatalf("rank %d: %v", rank, err)
				}
			}
			ends[0].writeDevice(0, pattern(mib, 9))
			if err := ends[0].putBatch(Desc{ends[0].device.Address(), ends[1].device.Address(), mib}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(ends[1].readDevice(0, mib), pattern(mib, 9)) {
				t.Error("other bytes came")
			}
		})
	}
}

func TestRootInfoIsOfTheOlderSequence(t *testing.T) {
	r := newRig(t)
	mustDoBlocking(t, r.newContext(0), func(at acl.CurrentThread) error {
		_, err := r.lib.RootInfo(at)
		wantRefusal(t, err, ErrInvalid, "rank table")
		_, err = r.lib.NewComm(at, CommOptions{Name: "rooted", RootInfo: make([]byte, 4108)})
		wantRefusal(t, err, ErrInvalid, "rank table")
		return nil
	})
	old := newRig(t, append([]string{"HcclGetRootInfo"}, newerSymbols...)...)
	mustDoBlocking(t, old.newContext(0), func(at acl.CurrentThread) error {
		_, err := old.lib.RootInfo(at)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.Symbol != "HcclGetRootInfo" {
			t.Errorf("got %v", err)
		}
		return nil
	})
}

// The oldest way: a rank table in a file, and no configuration. The file is removed.
func TestRankTableInAFile(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ends := newPairInProcess(t, RoCE, append([]string{"HcclCommInitClusterInfoConfig"}, newerSymbols...)...)
	if err := ends[0].putBatch(Desc{ends[0].device.Address(), ends[0].peer.Device, 64}); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	// Where none can be written, the machine is what is wrong.
	t.Setenv("TMPDIR", filepath.Join(folder, "absent"))
	mustDoBlocking(t, ends[0].ctx, func(at acl.CurrentThread) error {
		_, err := ends[0].lib.NewComm(at, commOptions(t, RoCE, 0, "nowhere"))
		if !errors.Is(err, acl.Config) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		return nil
	})
}

// The number of regions was agreed before: a different number is reported each time, and nothing is prepared.
func TestNumberOfRegionsThatDiffers(t *testing.T) {
	r := newRig(t, newerSymbols...)
	ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
	for i, e := range ends {
		if err := e.openComm(commOptions(t, RoCE, uint32(i), "differs")); err != nil {
			t.Fatal(err)
		}
	}
	errs := runForBoth(ends, func(e *endpoint, rank uint32) error {
		return e.ctx.DoBlocking(func(at *acl.BlockingThread) error { return e.comm.Prepare(at, longEnough, 2+int(rank)) })
	})
	if errs[0] != nil {
		t.Errorf("the end that was right: %v", errs[0])
	}
	wantRefusal(t, errs[1], ErrInvalid, "sent 2 regions; want 3")
	mustDoBlocking(t, ends[1].ctx, func(at acl.CurrentThread) error {
		wantRefusal(t, ends[1].comm.Prepare(at, longEnough, 3), ErrInvalid, "want 3")
		// With the right number Prepare continues there.
		return ends[1].comm.Prepare(at, longEnough, 2)
	})
	for _, e := range ends {
		if err := e.closeComm(); err != nil {
			t.Error(err)
		}
	}
}

// The largest number of regions is exchanged at once, and a further region is refused.
func TestAsManyRegionsAsThereMayBe(t *testing.T) {
	const most, size = 256, 4096
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hidden...)
			ends := [2]*endpoint{{rig: r, ctx: r.newContext(0)}, {rig: r, ctx: r.newContext(1)}}
			for _, e := range ends {
				e.mustDo(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
				e.deferClose(func(t *acl.Thread) error { return e.stream.Close(t) })
				e.mustDo(func(t *acl.Thread) (err error) {
					e.device, err = t.AllocDevice((most+1)*size, acl.HugeFirst)
					return err
				})
				e.deferClose(func(t *acl.Thread) error { return e.device.Close(t) })
				for i := range uintptr(most) {
					e.registerMemory(Memory{acl.OnDevice, e.device.Address() + i*size, size})
				}
			}
			for rank, err := range runForBoth(ends, func(e *endpoint, rank uint32) error {
				if err := e.openComm(commOptions(t, RoCE, rank, "most")); err != nil {
					return err
				}
				return e.ctx.DoBlocking(func(at *acl.BlockingThread) error { return e.comm.Prepare(at, longEnough, most) })
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			near := ends[0]
			last := uintptr(most-1) * size
			if err := near.putBatch(Desc{near.device.Address() + last, ends[1].device.Address() + last, size}); err != nil {
				t.Errorf("to the last region: %v", err)
			}
			near.registerMemory(Memory{acl.OnDevice, near.device.Address() + most*size, size})
			mustDoBlocking(t, near.ctx, func(at acl.CurrentThread) error {
				wantRefusal(t, near.comm.Bind(at, near.regions[most]), ErrInvalid, "has 256 regions")
				return nil
			})
			for _, e := range ends {
				if err := e.closeComm(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Libraries before CANN 9 have a limit of registrations; reaching the limit is an outcome, not a defect.
func TestRegistrationsRunOut(t *testing.T) {
	r := newRig(t)
	r.runCommand("set hccl_generation=8")
	t.Cleanup(func() { r.runCommand("set hccl_generation=9") })
	e := &endpoint{rig: r, ctx: r.newContext(0)}
	const most, size = 256, 4096
	e.mustDo(func(t *acl.Thread) (err error) {
		e.device, err = t.AllocDevice((most+1)*size, acl.HugeFirst)
		return err
	})
	e.deferClose(func(t *acl.Thread) error { return e.device.Close(t) })
	for i := range uintptr(most) {
		e.registerMemory(Memory{acl.OnDevice, e.device.Address() + i*size, size})
	}
	mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
		_, err := r.lib.RegisterMemory(at, Memory{acl.OnDevice, e.device.Address() + most*size, size})
		if wantCode(t, err, 7, "HcclRegisterGlobalMem"); !errors.Is(err, acl.Exhausted) {
			t.Errorf("got %v", err)
		}
		return nil
	})
}
