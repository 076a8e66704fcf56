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
		"with a name": newer, "without": append(slices.Clone(newer), "HcclCommInitRootInfoConfig"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hidden...)
			ends := [2]*end{newEnd(r, 0), newEnd(r, 1)}
			var root []byte
			apart(t, ends[0].ctx, func(at acl.Current) (err error) { root, err = r.lib.RootInfo(at); return err })
			for rank, err := range both(ends, func(e *end, rank uint32) error {
				return e.join(CommOptions{Name: "rooted", Rank: rank, RootInfo: root})
			}) {
				if err != nil {
					t.Fatalf("rank %d: %v", rank, err)
				}
			}
			ends[0].write(0, pattern(mib, 9))
			if err := ends[0].put(Desc{ends[0].device.Address(), ends[1].device.Address(), mib}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(ends[1].read(0, mib), pattern(mib, 9)) {
				t.Error("other bytes came")
			}
		})
	}
}

func TestRootInfoIsOfTheOlderSequence(t *testing.T) {
	r := newRig(t)
	apart(t, r.context(0), func(at acl.Current) error {
		_, err := r.lib.RootInfo(at)
		wantRefusal(t, err, ErrInvalid, "rank table")
		_, err = r.lib.NewComm(at, CommOptions{Name: "rooted", RootInfo: make([]byte, 4108)})
		wantRefusal(t, err, ErrInvalid, "rank table")
		return nil
	})
	old := newRig(t, append([]string{"HcclGetRootInfo"}, newer...)...)
	apart(t, old.context(0), func(at acl.Current) error {
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
	ends := couple(t, RoCE, append([]string{"HcclCommInitClusterInfoConfig"}, newer...)...)
	if err := ends[0].put(Desc{ends[0].device.Address(), ends[0].peer.Device, 64}); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	// Where none can be written, the machine is what is wrong.
	t.Setenv("TMPDIR", filepath.Join(folder, "absent"))
	apart(t, ends[0].ctx, func(at acl.Current) error {
		_, err := ends[0].lib.NewComm(at, options(t, RoCE, 0, "nowhere"))
		if !errors.Is(err, acl.Config) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		return nil
	})
}

// The number of regions was agreed before: a different number is reported each time, and nothing is prepared.
func TestNumberOfRegionsThatDiffers(t *testing.T) {
	r := newRig(t, newer...)
	ends := [2]*end{newEnd(r, 0), newEnd(r, 1)}
	for i, e := range ends {
		if err := e.open(options(t, RoCE, uint32(i), "differs")); err != nil {
			t.Fatal(err)
		}
	}
	errs := both(ends, func(e *end, rank uint32) error {
		return e.ctx.Apart(func(at *acl.Guest) error { return e.comm.Prepare(at, longEnough, 2+int(rank)) })
	})
	if errs[0] != nil {
		t.Errorf("the end that was right: %v", errs[0])
	}
	wantRefusal(t, errs[1], ErrInvalid, "told of 2 regions, and 3 were agreed on")
	apart(t, ends[1].ctx, func(at acl.Current) error {
		wantRefusal(t, ends[1].comm.Prepare(at, longEnough, 3), ErrInvalid, "3 were agreed on")
		// With the right number Prepare continues there.
		return ends[1].comm.Prepare(at, longEnough, 2)
	})
	for _, e := range ends {
		if err := e.shut(); err != nil {
			t.Error(err)
		}
	}
}

// The largest number of regions is exchanged at once, and a further region is refused.
func TestAsManyRegionsAsThereMayBe(t *testing.T) {
	const most, size = 256, 4096
	for name, hidden := range generations {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hidden...)
			ends := [2]*end{{rig: r, ctx: r.context(0)}, {rig: r, ctx: r.context(1)}}
			for _, e := range ends {
				e.do(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
				e.later(func(t *acl.Thread) error { return e.stream.Close(t) })
				e.do(func(t *acl.Thread) (err error) {
					e.device, err = t.AllocDevice((most+1)*size, acl.HugeFirst)
					return err
				})
				e.later(func(t *acl.Thread) error { return e.device.Close(t) })
				for i := range uintptr(most) {
					e.register(Memory{acl.OnDevice, e.device.Address() + i*size, size})
				}
			}
			for rank, err := range both(ends, func(e *end, rank uint32) error {
				if err := e.open(options(t, RoCE, rank, "most")); err != nil {
					return err
				}
				return e.ctx.Apart(func(at *acl.Guest) error { return e.comm.Prepare(at, longEnough, most) })
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			near := ends[0]
			last := uintptr(most-1) * size
			if err := near.put(Desc{near.device.Address() + last, ends[1].device.Address() + last, size}); err != nil {
				t.Errorf("to the last region: %v", err)
			}
			near.register(Memory{acl.OnDevice, near.device.Address() + most*size, size})
			apart(t, near.ctx, func(at acl.Current) error {
				wantRefusal(t, near.comm.Bind(at, near.regions[most]), ErrInvalid, "has 256 regions")
				return nil
			})
			for _, e := range ends {
				if err := e.shut(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Libraries before CANN 9 have a limit of registrations; reaching the limit is an outcome, not a defect.
func TestRegistrationsRunOut(t *testing.T) {
	r := newRig(t)
	r.control("set hccl_generation=8")
	t.Cleanup(func() { r.control("set hccl_generation=9") })
	e := &end{rig: r, ctx: r.context(0)}
	const most, size = 256, 4096
	e.do(func(t *acl.Thread) (err error) {
		e.device, err = t.AllocDevice((most+1)*size, acl.HugeFirst)
		return err
	})
	e.later(func(t *acl.Thread) error { return e.device.Close(t) })
	for i := range uintptr(most) {
		e.register(Memory{acl.OnDevice, e.device.Address() + i*size, size})
	}
	apart(t, e.ctx, func(at acl.Current) error {
		_, err := r.lib.Register(at, Memory{acl.OnDevice, e.device.Address() + most*size, size})
		if wantCode(t, err, 7, "HcclRegisterGlobalMem"); !errors.Is(err, acl.Exhausted) {
			t.Errorf("got %v", err)
		}
		return nil
	})
}
