//go:build cgo && linux

package comm

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A region can be closed after the communicators that bind it, and the last region of a device after all communicators
// there, because the library closes the NIC together with the last region.
func TestRegionsAreKeptWhileTheyAreNeeded(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(newRig(t, hidden...), 0)
			device, host := e.regions[0], e.regions[1]
			if device.Memory() != (Memory{acl.OnDevice, e.device.Address(), poolSize}) {
				t.Errorf("got %v", device.Memory())
			}
			if err := e.openComm(commOptions(t, RoCE, 0, "keeps")); err != nil {
				t.Fatal(err)
			}
			mustDoBlocking(t, e.ctx, func(at acl.CurrentThread) error {
				_, err := e.lib.RegisterMemory(at, device.Memory())
				wantRefusal(t, err, ErrInvalid, "registered already")
				wantRefusal(t, device.Close(at), ErrBusy, "bound to 1 communicators")
				wantRefusal(t, e.lib.Close(), ErrBusy, "2 regions and 1 communicators")
				if err := e.comm.Close(at); err != nil {
					return err
				}
				// A communicator that binds nothing still needs the NIC.
				bare, err := e.lib.NewComm(at, commOptions(t, RoCE, 0, "bare"))
				if err != nil {
					return err
				}
				if err := device.Close(at); err != nil {
					t.Errorf("closing one region of two: %v", err)
				}
				wantRefusal(t, host.Close(at), ErrBusy, "last region of device 0")
				wantRefusal(t, bare.Bind(at, device), ErrClosed, "region")
				if err := bare.Close(at); err != nil {
					return err
				}
				for range 2 {
					if err := host.Close(at); err != nil {
						t.Errorf("closing the last region: %v", err)
					}
				}
				return nil
			})
		})
	}
}

// Each device has a separate registry, and threads of a different device are refused before they use the wrong
// registry.
func TestRegionsBelongToTheirDevice(t *testing.T) {
	r := newRig(t)
	ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
	if err := ends[0].openComm(commOptions(t, RoCE, 0, "own")); err != nil {
		t.Fatal(err)
	}
	mustDoBlocking(t, ends[1].ctx, func(at acl.CurrentThread) error {
		wantRefusal(t, ends[0].regions[0].Close(at), ErrWrongOwner, "device 0, on a thread of device 1")
		wantRefusal(t, ends[0].comm.Close(at), ErrWrongOwner, "device 0, on a thread of device 1")
		wantRefusal(t, ends[0].comm.Bind(at, ends[1].regions...), ErrWrongOwner, "device 0")
		wantRefusal(t, ends[0].comm.AsyncError(at), ErrWrongOwner, "device 0")
		return nil
	})
	mustDoBlocking(t, ends[0].ctx, func(at acl.CurrentThread) error {
		wantRefusal(t, ends[0].comm.Bind(at, ends[1].regions...), ErrWrongOwner, "device 1")
		return ends[0].comm.Close(at)
	})
}

func TestMemoryThatIsRefused(t *testing.T) {
	r := newRig(t)
	c := r.newContext(0)
	mustDoBlocking(t, c, func(at acl.CurrentThread) error {
		for _, m := range []Memory{
			{0, 4096, 64}, {acl.OnDevice, 0, 64}, {acl.OnHost, 4096, 0}, {acl.OnDevice, 4096, 1<<64 - 1},
		} {
			_, err := r.lib.RegisterMemory(at, m)
			wantRefusal(t, err, ErrInvalid, "cannot register")
		}
		return nil
	})
	if n := r.readStat("calls.HcclRegisterGlobalMem"); n != 0 {
		t.Errorf("%d calls reached the library", n)
	}
}

// Each thread gets the text of its own failure.
func TestMessagesBelongToTheirThread(t *testing.T) {
	r := newRig(t)
	contexts := [2]*acl.Context{r.newContext(0), r.newContext(1)}
	var failed [2]error
	var there, ended sync.WaitGroup
	there.Add(len(contexts))
	for i, c := range contexts {
		ended.Go(func() {
			failed[i] = c.DoBlocking(func(at *acl.BlockingThread) error {
				there.Done()
				there.Wait()
				_, err := r.lib.RegisterMemory(at, Memory{acl.OnDevice, 0x10000 * uintptr(i+1), 64})
				return err
			})
		})
	}
	ended.Wait()
	for i, err := range failed {
		e := wantCode(t, err, 1, "HcclRegisterGlobalMem")
		if want := fmt.Sprintf("%#x", 0x10000*(i+1)); !strings.Contains(e.Message, want) {
			t.Errorf("thread %d was told %q, want something of %s", i, e.Message, want)
		}
	}
}
