package recording

import (
	"bytes"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// carriedField is the name of the only field of a message that holds chunks, on the wire.
var carriedField = []byte("kvf_bytes")

// A blanker finds the chunks that messages carry.
type blanker struct {
	limits  protocol.Limits
	message protocol.AllocRequest // reused
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

// appendBlanked appends an event like appendEvent. In place of chunks that the event carries there are zeros.
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
	clear(body[from:][:length])
	return b, true
}
