package plane

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// A Verifier compares the bytes of pages that a plane has filled with the checksums that their source stated. A
// nil Verifier finds every page as stated. A Verifier is safe for concurrent use.
type Verifier struct {
	// OnCorrupt is called with a page whose bytes have another checksum than its Sum, on the goroutine that has filled the
	// page. The bytes may be used during the call only. Nil: nothing is called.
	OnCorrupt func(page effects.Page, found effects.Sum, bytes []byte)

	bytes   atomic.Uint64
	corrupt atomic.Uint64
}

// Verify reports whether bytes, the valid bytes of a page, have the page's checksum, or the page has none.
func (v *Verifier) Verify(page effects.Page, bytes []byte) bool {
	if v == nil || page.Sum == 0 {
		return true
	}
	v.bytes.Add(uint64(len(bytes)))
	found := effects.SumOf(bytes)
	if found == page.Sum {
		return true
	}
	v.corrupt.Add(1)
	if v.OnCorrupt != nil {
		v.OnCorrupt(page, found, bytes)
	}
	return false
}

// Bytes returns the number of bytes that were compared, and Corrupt the number of pages that were not as stated.
func (v *Verifier) Bytes() uint64   { return v.bytes.Load() }
func (v *Verifier) Corrupt() uint64 { return v.corrupt.Load() }
