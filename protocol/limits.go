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
	// HashCount bounds the chunk hashes of one message: of a lookup, of a batch of a full sync. Default 65,536: LMCache's
	// workers send 2,000, and a million tokens in its chunks are 4,096.
	HashCount int
	// OperationCount bounds the admits and evicts of one message. Default 4,096: LMCache's workers send 50.
	OperationCount int
	// HolderCount bounds the holders that answer one lookup. Default 256.
	HolderCount int
	// CommandCount bounds the commands of one heartbeat's answer. Default 16.
	CommandCount int
	// BlockCount bounds the blocks that one registration names. Default 65,536: a million tokens in blocks of 16.
	BlockCount int
	// AgentBytes bounds what a data plane's library says of an agent. Default 256 KiB: NIXL's grows with the regions.
	AgentBytes int
	// MapLen bounds the fields of one declared map, the unknown ones included, and of JSON those of every object.
	// Default 64.
	MapLen int
	// Depth bounds nesting, counted from 1 for the message itself. Default 8; the reference
	// messages need 3. Never more than depthMax applies, whatever is set.
	Depth int
}

// depthMax keeps the recursion that skips unknown fields within a few KiB of stack.
const depthMax = 64

var defaultLimits = Limits{
	MessageBytes:   1 << 20,
	KeyBytes:       512,
	StringBytes:    1 << 10,
	BlobBytes:      16 << 10,
	ArrayLen:       4096,
	BufferCount:    256,
	PlaneCount:     16,
	HashCount:      1 << 16,
	OperationCount: 4096,
	HolderCount:    256,
	CommandCount:   16,
	BlockCount:     1 << 16,
	AgentBytes:     256 << 10,
	MapLen:         64,
	Depth:          8,
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
