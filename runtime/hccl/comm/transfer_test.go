//go:build cgo && linux

package comm

import (
	"bytes"
	"fmt"
	"testing"
)

// Sizes around the library's units, and the largest number of descriptors, in both directions, between two processes.
func TestPutAndGetOfAllSizes(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			l, e := newPairOfProcesses(t, RoCE, hidden...)
			if l.isOther {
				for {
					var size int
					if l.readValue(&size); size == 0 {
						return
					}
					l.sendValue(bytes.Equal(e.readDevice(0, size), pattern(size, byte(size))))
					e.writeDevice(poolSize/2, pattern(size, byte(size)+1))
					l.allowStep()
				}
			}
			for _, size := range []int{1, 63, 64, 65, 4096, 2 * mib} {
				e.writeDevice(0, pattern(size, byte(size)))
				if err := e.putBatch(Desc{e.device.Address(), e.peer.Device, uint64(size)}); err != nil {
					t.Fatalf("put of %d bytes: %v", size, err)
				}
				l.sendValue(size)
				var same bool
				if l.readValue(&same); !same {
					t.Errorf("put of %d bytes: other bytes came", size)
				}
				l.awaitStep()
				if err := e.getBatch(Desc{e.device.Address(), e.peer.Device + poolSize/2, uint64(size)}); err != nil {
					t.Fatalf("get of %d bytes: %v", size, err)
				}
				if !bytes.Equal(e.readDevice(0, size), pattern(size, byte(size)+1)) {
					t.Errorf("get of %d bytes: other bytes came", size)
				}
			}
			l.sendValue(0)
		})
	}
}

func TestAsManyDescriptorsAsThereMayBe(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			ends := newPairInProcess(t, RoCE, hidden...)
			e := ends[0]
			const page = 1000
			data := pattern(DescMax*page, 3)
			e.writeDevice(0, data)
			// Turned round, so that each descriptor counts.
			var descs []Desc
			for i := range uintptr(DescMax) {
				descs = append(descs, Desc{e.device.Address() + i*page, e.peer.Device + (DescMax-1-i)*page, page})
			}
			if err := e.putBatch(descs...); err != nil {
				t.Fatal(err)
			}
			got := ends[1].readDevice(0, len(data))
			for i := range DescMax {
				if !bytes.Equal(got[(DescMax-1-i)*page:][:page], data[i*page:][:page]) {
					t.Fatalf("descriptor %d is not where it belongs", i)
				}
			}
			batches := e.readStat("batches")
			wantRefusal(t, e.putBatch(append(descs, descs[0])...), ErrInvalid, "257 descriptors")
			wantRefusal(t, e.putBatch(), ErrInvalid, "0 descriptors")
			if e.readStat("batches") != batches {
				t.Error("a refused batch reached the library")
			}
		})
	}
}

// Wrong arguments are refused before anything is queued, and the communicator continues.
func TestBatchesThatAreRefused(t *testing.T) {
	ends := newPairInProcess(t, RoCE)
	e := ends[0]
	here, there := e.device.Address(), e.peer.Device
	batches := e.readStat("batches")
	for name, d := range map[string]Desc{
		"no bytes":                {here, there, 0},
		"no remote address":       {here, 0, 64},
		"no local address":        {0, there, 64},
		"beyond the local region": {here + poolSize - 63, there, 64},
		"a length that wraps":     {here + 64, there, 1<<64 - 64},
		"other local memory":      {here - 64, there, 64},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, e.putBatch(Desc{here, there, 64}, d), ErrInvalid, "descriptor 1")
		})
	}
	if e.readStat("batches") != batches {
		t.Error("a refused batch reached the library")
	}
	if err := e.putBatch(Desc{here + poolSize - 64, there, 64}); err != nil {
		t.Errorf("after the refusals: %v", err)
	}
}

// A faulty descriptor that only the library can detect: the descriptors before it may have been queued, and the
// communicator accepts no more work.
func TestFaultyFifthDescriptorFences(t *testing.T) {
	for name, hidden := range librariesBySequence {
		t.Run(name, func(t *testing.T) {
			ends := newPairInProcess(t, RoCE, hidden...)
			e := ends[0]
			here, there := e.device.Address(), e.peer.Device
			var descs []Desc
			for i := range uintptr(8) {
				descs = append(descs, Desc{here + i*64, there + i*64, 64})
			}
			descs[4].Remote = there + poolSize - 63
			failed := wantCode(t, e.putBatch(descs...), 4, "HcclBatchPut")
			if want := fmt.Sprintf("%#x", descs[4].Remote); !bytes.Contains([]byte(failed.Message), []byte(want)) {
				t.Errorf("the library's text %q does not name %s", failed.Message, want)
			}
			wantRefusal(t, e.putBatch(descs[0]), ErrFenced, "new name")
			wantRefusal(t, e.getBatch(descs[0]), ErrFenced, "new name")
		})
	}
}

// Host memory is a target over RoCE and not over HCCS, where host memory can still be a source.
func TestHostMemoryAsTarget(t *testing.T) {
	for name, hidden := range librariesBySequence {
		for _, link := range []Link{RoCE, HCCS} {
			t.Run(fmt.Sprint(name, " ", link), func(t *testing.T) {
				ends := newPairInProcess(t, link, hidden...)
				e := ends[0]
				copy(e.host.Bytes(), pattern(mib, 7))
				if err := e.putBatch(Desc{e.host.Address(), e.peer.Device, mib}); err != nil {
					t.Fatalf("from host memory: %v", err)
				}
				if !bytes.Equal(ends[1].readDevice(0, mib), pattern(mib, 7)) {
					t.Error("from host memory: other bytes came")
				}
				err := e.putBatch(Desc{e.host.Address(), e.peer.Host, mib})
				if link == HCCS {
					wantCode(t, err, 4, "HcclBatchPut")
					return
				}
				if err != nil || !bytes.Equal(ends[1].host.Bytes()[:mib], pattern(mib, 7)) {
					t.Errorf("to host memory: %v, or other bytes", err)
				}
			})
		}
	}
}
