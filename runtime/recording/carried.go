package recording

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// carriedField is the name of the only field of a message that holds chunks, on the wire.
var carriedField = []byte("kvf_bytes")

// A blanker takes the chunks out of messages that carry them.
type blanker struct {
	limits    protocol.Limits
	pageBytes int                   // the length of a chunk; the last one of a message may be shorter
	message   protocol.AllocRequest // reused
}

// findChunks returns where the message of a peer carries chunks, as a part of its body. A message that cannot be decoded,
// which the machine refuses, has none.
func (c *blanker) findChunks(ev effects.Event) (from, length int) {
	r, ok := ev.(*effects.Received)
	if !ok || !bytes.Contains(r.Body, carriedField) {
		return 0, 0
	}
	if c.message.Decode(r.Body, &c.limits) != nil || len(c.message.Ext.Carried) == 0 {
		return 0, 0
	}
	chunks := c.message.Ext.Carried // A decoded field is a part of the message.
	at := uintptr(unsafe.Pointer(unsafe.SliceData(chunks))) - uintptr(unsafe.Pointer(unsafe.SliceData(r.Body)))
	if at > uintptr(len(r.Body)-len(chunks)) {
		return 0, 0
	}
	return int(at), len(chunks)
}

// appendBlanked appends an event like appendEvent. In place of chunks that the event carries there are zeros. If the
// message states checksums, which the machine compares, the last four bytes of each chunk are such that the chunk has the
// checksum that it had, so that a replay compares with the same result.
func (c *blanker) appendBlanked(b []byte, ev effects.Event) ([]byte, bool) {
	from, length := c.findChunks(ev)
	if length == 0 {
		return appendEvent(b, ev)
	}
	r := *ev.(*effects.Received)
	start := len(b)
	b, ok := appendEvent(b, &r)
	// The body is the last field of the record, and its encoding is the body itself.
	body := b[len(b)-len(r.Body):]
	if !ok || start+len(r.Body) >= len(b) || !bytes.Equal(body[from:][:length], r.Body[from:][:length]) {
		panic("BUG: the body of a message is not where its record has it")
	}
	hasSums := len(c.message.Ext.Sums) > 0
	for rest := body[from:][:length]; len(rest) > 0; {
		chunk := rest[:min(len(rest), max(c.pageBytes, 1))]
		rest = rest[len(chunk):]
		sum := crc32.Checksum(chunk, crcTable)
		if clear(chunk); hasSums {
			forceSum(chunk, sum)
		}
	}
	return b, true
}

// forceSum sets the last four bytes of a chunk so that its CRC-32C is sum. A shorter chunk stays as it is.
func forceSum(chunk []byte, sum uint32) {
	if len(chunk) < 4 {
		return
	}
	end := chunk[len(chunk)-4:]
	// A step of the CRC with the byte b makes table[byte(r)^b] ^ r>>8 of the register r. The upper byte of the result is
	// that of the table's entry alone, so that each step can be undone.
	r := ^sum
	for range 4 {
		i := crcSteps[r>>24]
		r = (r^crcTable[i])<<8 | uint32(i)
	}
	before := ^crc32.Checksum(chunk[:len(chunk)-4], crcTable)
	binary.LittleEndian.PutUint32(end, r^before)
}

// crcSteps has the number of the entry of crcTable with each upper byte.
var crcSteps = func() (all [256]byte) {
	for i, entry := range crcTable {
		all[entry>>24] = byte(i)
	}
	return all
}()
