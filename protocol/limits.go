package protocol

// Limits bounds what a decoder accepts. A limit of zero accepts nothing of its kind; a nil
// *Limits stands for DefaultLimits. Limits are read only while decoding and may be shared.
type Limits struct {
	// MessageBytes bounds a whole payload. Default 1 MiB: 4,096 keys of 200 bytes fit.
	MessageBytes int
	// KeyBytes bounds one cache-engine key. Default 512: model paths are the long part.
	KeyBytes int
	// StringBytes bounds every other declared string and every field name. Default 1 KiB.
	StringBytes int
	// BlobBytes bounds one opaque plane blob of a handshake. Default 16 KiB.
	BlobBytes int
	// ArrayLen bounds the keys of a batch and every list that runs beside them. Default 4,096.
	ArrayLen int
	// BufferCount bounds the buffers that one peer may announce. Default 256.
	BufferCount int
	// PlaneCount bounds the data planes that one peer may announce. Default 16.
	PlaneCount int
	// MapLen bounds the fields of one declared map, the unknown ones included. Default 64.
	MapLen int
	// Depth bounds nesting, counted from 1 for the message itself. Default 8; the reference
	// messages need 3. Never more than depthMax applies, whatever is set.
	Depth int
}

// depthMax keeps the recursion that skips unknown fields within a few KiB of stack.
const depthMax = 64

var defaultLimits = Limits{
	MessageBytes: 1 << 20,
	KeyBytes:     512,
	StringBytes:  1 << 10,
	BlobBytes:    16 << 10,
	ArrayLen:     4096,
	BufferCount:  256,
	PlaneCount:   16,
	MapLen:       64,
	Depth:        8,
}

// DefaultLimits returns the limits that suit every known deployment.
func DefaultLimits() Limits { return defaultLimits }

// orDefault resolves a nil.
func (l *Limits) orDefault() *Limits {
	if l == nil {
		return &defaultLimits
	}
	return l
}
