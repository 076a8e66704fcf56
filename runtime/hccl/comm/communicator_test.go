//go:build cgo && linux

package comm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

func TestOptionsOfACommunicatorAreChecked(t *testing.T) {
	number := func(n uint32) *uint32 { return &n }
	for name, hidden := range librariesBySequence {
		r := newRig(t, hidden...)
		c := r.newContext(0)
		for want, spoil := range map[string]func(*CommOptions){
			"name":               func(o *CommOptions) { o.Name = "" },
			"128 bytes":          func(o *CommOptions) { o.Name = strings.Repeat("n", 128) },
			"none of them zero":  func(o *CommOptions) { o.Name = "a\x00b" },
			"rank is 2":          func(o *CommOptions) { o.Rank = 2 },
			"and not both":       func(o *CommOptions) { o.RootInfo = make([]byte, 4108) },
			"give a rank table":  func(o *CommOptions) { o.RankTable = nil },
			"traffic class 130":  func(o *CommOptions) { o.TrafficClass = number(130) },
			"traffic class 256":  func(o *CommOptions) { o.TrafficClass = number(256) },
			"service level 8":    func(o *CommOptions) { o.ServiceLevel = number(8) },
			"CloseTimeout is -1": func(o *CommOptions) { o.CloseTimeout = -1 },
		} {
			mustDoBlocking(t, c, func(at acl.CurrentThread) error {
				o := commOptions(t, RoCE, 0, "checked")
				spoil(&o)
				_, err := r.lib.NewComm(at, o)
				wantRefusal(t, err, ErrInvalid, want)
				return nil
			})
		}
		mustDoBlocking(t, c, func(at acl.CurrentThread) error {
			o := commOptions(t, RoCE, 0, "checked")
			o.RankTable, o.RootInfo = nil, make([]byte, 4107)
			_, err := r.lib.NewComm(at, o)
			wantRefusal(t, err, ErrInvalid, "root info")
			o = commOptions(t, RoCE, 0, strings.Repeat("n", 127))
			o.TrafficClass, o.ServiceLevel = number(132), number(0)
			made, err := r.lib.NewComm(at, o)
			if err != nil {
				t.Fatalf("%s: a long name: %v", name, err)
			}
			if made.Name() != o.Name {
				t.Errorf("its name is %s", made.Name())
			}
			return made.Close(at)
		})
	}
}

// The library must not make communicators in parallel, and the software NPU checks this rule.
func TestCommunicatorsAreMadeOneAtATime(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hidden...)
			contexts := [2]*acl.Context{r.newContext(0), r.newContext(1)}
			var all sync.WaitGroup
			errs := make(chan error, 16)
			for i := range 16 {
				all.Go(func() {
					errs <- contexts[i%2].DoBlocking(func(at *acl.BlockingThread) error {
						c, err := r.lib.NewComm(at, commOptions(t, RoCE, uint32(i%2), fmt.Sprint("many", i)))
						if err != nil {
							return err
						}
						return c.Close(at)
					})
				})
			}
			all.Wait()
			for range 16 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Errors of the library itself: a name that is in use, and an invalid table.
func TestCommunicatorsThatTheLibraryRefuses(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			call := "HcclCommInitClusterInfoMemConfig"
			if len(hidden) != 0 {
				call = "HcclCommInitClusterInfoConfig"
			}
			r := newRig(t, hidden...)
			mustDoBlocking(t, r.newContext(0), func(at acl.CurrentThread) error {
				o := commOptions(t, RoCE, 0, "taken")
				first, err := r.lib.NewComm(at, o)
				if err != nil {
					return err
				}
				_, err = r.lib.NewComm(at, o)
				failed := wantCode(t, err, 1, call)
				if !errors.Is(err, acl.Bug) || !strings.Contains(failed.Message, "taken") || !strings.Contains(failed.Args,
					"name=taken rank=0") {
					t.Errorf("got %v", err)
				}
				o.Name, o.RankTable = "noip", []byte(strings.Replace(string(o.RankTable), "192.168.1.10", "", 1))
				_, err = r.lib.NewComm(at, o)
				wantCode(t, err, 6, call)
				return first.Close(at)
			})
		})
	}
}

// Ends with different names do not meet; ends with the same name meet.
func TestNamesThatDiffer(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			call := "HcclCommPrepare"
			if len(hidden) != 0 {
				call = "HcclExchangeMemDesc"
			}
			r := newRig(t, hidden...)
			ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
			errs := runForBoth(ends, func(e *endpoint, rank uint32) error {
				if err := e.openComm(commOptions(t, RoCE, rank, fmt.Sprint("differs", rank))); err != nil {
					return err
				}
				return errors.Join(e.ctx.DoBlocking(func(at *acl.BlockingThread) error {
					return e.comm.Prepare(at, time.Second, 2)
				}), e.closeComm())
			})
			for _, err := range errs {
				if e := wantCode(t, err, 9, call); !e.Code.CanRetry() || !errors.Is(err, acl.Link) {
					t.Errorf("got %v", err)
				}
			}
			joinBoth(t, ends, RoCE, "same")
			ends[0].peer = ends[1].poolAddresses()
			if err := ends[0].putBatch(Desc{ends[0].device.Address(), ends[0].peer.Device, 64}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A late peer is waited for in several attempts, and preparing twice is no failure.
func TestPrepareMayBeTriedAgain(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hidden...)
			ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
			for i, e := range ends {
				if err := e.openComm(commOptions(t, RoCE, uint32(i), "late")); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := e.closeComm(); err != nil {
						t.Error(err)
					}
				})
			}
			near := ends[0]
			near.peer = ends[1].poolAddresses()
			d := Desc{near.device.Address(), near.peer.Device, 64}
			wantRefusal(t, near.putBatch(d), ErrNotReady, "late")
			mustDoBlocking(t, near.ctx, func(at acl.CurrentThread) error {
				wantRefusal(t, near.comm.Prepare(at, 0, 2), ErrInvalid, "1 s")
				wantRefusal(t, near.comm.Prepare(at, 3*time.Hour, 2), ErrInvalid, "7200")
				wantRefusal(t, near.comm.Prepare(at, time.Second, 257), ErrInvalid, "the limit is 256")
				if err := near.comm.Prepare(at, time.Millisecond, 2); !errors.Is(err, acl.Link) {
					t.Errorf("without a peer: %v", err)
				}
				return nil
			})
			wantRefusal(t, near.putBatch(d), ErrNotReady, "late")
			for range 2 {
				for rank, err := range runForBoth(ends, func(e *endpoint, _ uint32) error { return e.prepareComm() }) {
					if err != nil {
						t.Fatalf("rank %d: %v", rank, err)
					}
				}
			}
			if err := near.putBatch(d); err != nil {
				t.Error(err)
			}
		})
	}
}

// Memory that is bound late can be used by this end, and is unknown to the peer.
func TestRegionsThatAreBoundLate(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			ends := newPairInProcess(t, RoCE, hidden...)
			var more [2]*acl.Memory
			for i, e := range ends {
				e.mustDo(func(t *acl.Thread) (err error) { more[i], err = t.AllocDevice(poolSize, acl.HugeFirst); return err })
				e.deferClose(func(t *acl.Thread) error { return more[i].Close(t) })
				e.registerMemory(Memory{acl.OnDevice, more[i].Address(), poolSize})
				mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error { return e.comm.Bind(at, e.regions[2]) })
				t.Cleanup(func() { // before the region goes
					if err := e.closeComm(); err != nil {
						t.Error(err)
					}
				})
			}
			near := ends[0]
			if err := near.putBatch(Desc{more[0].Address(), near.peer.Device, 64}); err != nil {
				t.Errorf("from it: %v", err)
			}
			wantCode(t, near.getBatch(Desc{near.device.Address(), more[1].Address(), 64}), 4, "HcclBatchGet")
		})
	}
}

// Destroying the target's end revokes the peer's access, over RoCE.
func TestClosingRevokes(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			ends := newPairInProcess(t, RoCE, hidden...)
			near, far := ends[0], ends[1]
			near.writeDevice(0, pattern(mib, 1))
			far.writeDevice(0, make([]byte, mib))
			if err := far.closeComm(); err != nil {
				t.Fatal(err)
			}
			if err := near.putBatch(Desc{near.device.Address(), near.peer.Device, mib}); !errors.Is(err, acl.Link) {
				t.Errorf("put to what was closed: %v, want a failure of the link", err)
			}
			for i, b := range far.readDevice(0, mib) {
				if b != 0 {
					t.Fatalf("byte %d was written after it was revoked", i)
				}
			}
		})
	}
}

// A right that was kept is refused before the library is called.
func TestStrayThreadIsRefused(t *testing.T) {
	ends := newPairInProcess(t, RoCE)
	e := ends[0]
	var kept *acl.BlockingThread
	mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error { kept = at.(*acl.BlockingThread); return nil })
	before := e.countCalls()
	for name, use := range map[string]func() error{
		"Register": func() error { _, err := e.lib.RegisterMemory(kept, Memory{acl.OnDevice, 4096, 64}); return err },
		"NewComm":  func() error { _, err := e.lib.NewComm(kept, commOptions(t, RoCE, 0, "stray")); return err },
		"RootInfo": func() error { _, err := e.lib.RootInfo(kept); return err },
		"Close":    func() error { return e.regions[0].Close(kept) },
		"Bind":     func() error { return e.comm.Bind(kept, e.regions[0]) },
		"Prepare":  func() error { return e.comm.Prepare(kept, time.Second, 2) },
		"Put":      func() error { return e.comm.Put(kept, e.stream, []Desc{{e.device.Address(), e.peer.Device, 64}}) },
		"Get":      func() error { return e.comm.Get(kept, e.stream, []Desc{{e.device.Address(), e.peer.Device, 64}}) },
		"Async":    func() error { return e.comm.AsyncError(kept) },
		"Comm":     func() error { return e.comm.Close(kept) },
	} {
		if err := use(); !errors.Is(err, acl.ErrWrongThread) {
			t.Errorf("%s: %v, want ErrStray", name, err)
		}
	}
	if after := e.countCalls(); after != before {
		t.Errorf("%d calls reached the library", after-before)
	}
}

// countCalls counts all calls of HCCL.
func (r *rig) countCalls() (sum int64) {
	r.t.Helper()
	stats, err := r.npu.Stats()
	if err != nil {
		r.t.Fatal(err)
	}
	for name, n := range stats {
		if strings.HasPrefix(name, "calls.Hccl") {
			sum += n
		}
	}
	return sum
}
