//go:build cgo && linux

package comm

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

// BenchmarkBatch measures what the binding adds to a batch: the checks, the descriptors and the calls into C, without
// the library's work. The right of a thread is checked once and the library called once, which costs the same.
func BenchmarkBatch(b *testing.B) {
	for _, descriptors := range []int{1, 16, DescMax} {
		b.Run(fmt.Sprintf("descriptors=%d", descriptors), func(b *testing.B) {
			ends := newPairInProcess(b, RoCE)
			e := ends[0]
			var descs []Desc
			for i := range uintptr(descriptors) {
				descs = append(descs, Desc{e.device.Address() + i*64, e.peer.Device + i*64, 64})
			}
			e.mustDo(func(at *acl.Thread) error {
				b.ReportAllocs()
				for b.Loop() {
					for range 2 {
						if err := at.CheckThread(); err != nil {
							return err
						}
					}
					if err := e.stream.CheckUsable(at); err != nil {
						return err
					}
					e.comm.mu.Lock()
					if err := e.comm.checkBatch(e.stream, descs); err != nil {
						return err
					}
					e.comm.fillBatch(descs)
					e.comm.mu.Unlock()
				}
				return nil
			})
		})
	}
}

// BenchmarkPut measures a batch over the software NPU, with a page of 1 MiB, until the batch has ended.
func BenchmarkPut(b *testing.B) {
	ends := newPairInProcess(b, RoCE)
	e := ends[0]
	b.SetBytes(mib)
	for b.Loop() {
		if err := e.putBatch(Desc{e.device.Address(), e.peer.Device, mib}); err != nil {
			b.Fatal(err)
		}
	}
}
