//go:build cgo && linux

package nixl_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// transports are those within one host: UCX's default, by which a peer reaches into the process, and those by which
// our own agent stores.
var transports = []struct {
	name, transports string
	attaches         bool
}{{"its choice", "", true}, {"tcp", "tcp", false}, {"shared memory", "^cma", false}}

// longTimeout has timeouts so long that a node gives nothing up before the test does.
const longTimeout = time.Minute

// maker makes nodes whose planes may use these transports. In tests with a planetest.Fleet they have certificates.
func maker(transports string, change ...func(*nixl.Config)) planetest.LeasedMaker {
	return planetest.LeasedMaker(func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
		tb.Helper()
		libnixltest.LoadLibrary(tb)
		c := nixl.Config{
			Agents: nixlproc.Options{}.Open, Transports: transports, TransferTimeout: longTimeout, CancelGrace: longTimeout,
			RebuildTries: 100,
		}
		for _, f := range change {
			f(&c)
		}
		file, bytes := libnixltest.AllocShared(tb, int(uint64(pages)*pageBytes))
		m := memory(bytes)
		pool, err := plane.NewLeasedPool(plane.LeasedPoolConfig{
			ID: 3, Buffer: [16]byte{id, 0xb}, Pages: pages, PageBytes: pageBytes, Sink: sink,
			Region: plane.Region{Host: true, Base: m.base(), Bytes: uint64(len(m)), File: file},
		})
		if err != nil {
			tb.Fatal(err)
		}
		return planetest.LeasedEnd{Pool: pool, Memory: m, Open: c.Open}
	}).WithCertificates()
}

// A memory is the memory of a pool.
type memory []byte

func (m memory) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }

// Store implements planetest.Memory.
func (m memory) Store(at uintptr, b []byte) error {
	copy(m[at-m.base():], b)
	return nil
}

// Load implements planetest.Memory.
func (m memory) Load(at uintptr, b []byte) error {
	copy(b, m[at-m.base():])
	return nil
}
