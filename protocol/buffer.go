package protocol

import "math/bits"

// A BufferRef points at one page of a registered buffer. It means something only within the
// incarnation of the buffer's owner: buffers get new UUIDs with every process.
type BufferRef struct {
	Buffer UUID
	Page   uint32
}

// A BufferInfo announces one registered buffer: LMCache-Ascend's PeerBufferInfo.
type BufferInfo struct {
	UUID     UUID
	Ptr      uint64 // address in the owner's memory; what it is good for depends on the plane
	Size     uint64 // bytes
	PageSize uint64 // bytes
	IsDevice bool   // device memory; the reference implementation never sets it
}

// Valid reports whether the buffer consists of one or more whole pages that have addresses.
func (i *BufferInfo) Valid() bool {
	_, wraps := bits.Add64(i.Ptr, i.Size, 0)
	return i.PageSize != 0 && i.Size != 0 && i.Size%i.PageSize == 0 && wraps == 0
}

// Pages returns the number of whole pages in the buffer, 0 if it states no page size.
func (i *BufferInfo) Pages() uint64 {
	if i.PageSize == 0 {
		return 0
	}
	return i.Size / i.PageSize
}

// Page resolves a page index as a peer sent it to the page's offset in the buffer, in bytes. Every
// index is checked, whatever message it came in: some revisions write to wherever it leads.
func (i *BufferInfo) Page(index int64) (offset uint64, ok bool) {
	if index < 0 || uint64(index) >= i.Pages() {
		return 0, false
	}
	return uint64(index) * i.PageSize, true
}

// Fields of PeerBufferInfo, which has no tag.
const (
	bufferUUID = iota
	bufferPtr
	bufferSize
	bufferPageSize
	bufferIsDevice
)

var bufferSchema = schema{
	name:     "PeerBufferInfo",
	names:    []string{"uuid", "buffer_ptr", "buffer_size", "page_size", "is_device"},
	required: 1<<bufferUUID | 1<<bufferPtr | 1<<bufferSize | 1<<bufferPageSize,
}

func (i *BufferInfo) append(b []byte) []byte {
	b = appendMapHeader(b, len(bufferSchema.names))
	b = appendUUID(appendStr(b, "uuid"), i.UUID)
	b = appendUint(appendStr(b, "buffer_ptr"), i.Ptr)
	b = appendUint(appendStr(b, "buffer_size"), i.Size)
	b = appendUint(appendStr(b, "page_size"), i.PageSize)
	return appendBool(appendStr(b, "is_device"), i.IsDevice)
}

func (i *BufferInfo) decode(r *reader) {
	w := fields{r: r, schema: &bufferSchema, depth: 4} // message, list, map, value
	for w.open(); w.next(); {
		switch w.at {
		case bufferUUID:
			i.UUID = r.uuid()
		case bufferPtr:
			i.Ptr = r.uint64()
		case bufferSize:
			i.Size = r.uint64()
		case bufferPageSize:
			i.PageSize = r.uint64()
		case bufferIsDevice:
			i.IsDevice = r.boolean()
		}
	}
	w.close()
}

// appendBuffers appends the field of a message that lists buffers.
func appendBuffers(b []byte, buffers []BufferInfo) []byte {
	b = appendArrayHeader(appendStr(b, "buffers"), len(buffers))
	for i := range buffers {
		b = buffers[i].append(b)
	}
	return b
}

// buffers appends a list of buffers to vs.
func (r *reader) buffers(vs []BufferInfo) []BufferInfo {
	message, field := r.message, r.field
	for n := r.arrayUpTo(r.lim.BufferCount, "BufferCount"); n > 0 && r.ok(); n-- {
		var i BufferInfo
		i.decode(r)
		vs = append(vs, i)
	}
	r.message, r.field = message, field
	return vs
}
