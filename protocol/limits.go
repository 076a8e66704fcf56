package protocol

// Limits bounds what a decoder accepts. A limit of zero accepts nothing of the limited kind; a nil *Limits stands for
// DefaultLimits. Decoders only read Limits, so several decoders may share one.
type Limits struct {
	// MessageBytes bounds a whole payload. Default 1 MiB, enough for 4,096 keys of 200 bytes.
	MessageBytes int
	// KeyBytes bounds a cache-engine key. Default 512: model paths are the long part.
	KeyBytes int
	// StringBytes bounds every declared string that is not a key, and every field name. Default 1 KiB.
	StringBytes int
	// BlobBytes bounds an opaque blob of a data plane in a handshake. Default 16 KiB.
	BlobBytes int
	// ArrayLen bounds the keys of a batch and every list that is parallel to the keys. Default 4,096.
	ArrayLen int
	// BufferCount bounds the buffers that a peer may announce. Default 256.
	BufferCount int
	// PlaneCount bounds the data planes that a peer may announce. Default 16.
	PlaneCount int
	// HashCount bounds the chunk hashes of a message: of a lookup, or of a batch of a full sync. Default 65,536:
	// LMCache's workers send 2,000, and a million tokens in LMCache's chunks are 4,096.
	HashCount int
	// OperationCount bounds the admits and evicts of a message. Default 4,096: LMCache's workers send 50.
	OperationCount int
	// HolderCount bounds the holders in the reply to a lookup. Default 256.
	HolderCount int
	// CommandCount bounds the commands in the reply to a heartbeat. Default 16.
	CommandCount int
	// BlockCount bounds the blocks that a registration names. Default 65,536: a million tokens in blocks of 16.
	BlockCount int
	// AgentBytes bounds the description of an agent by a data plane's library. Default 256 KiB: NIXL's description grows
	// with the number of regions.
	AgentBytes int
	// MapLen bounds the fields of a declared map, unknown fields included, and in JSON the fields of every object.
	// Default 64.
	MapLen int
	// Depth bounds nesting; the message itself has depth 1. Default 8: the reference messages need 3. The effective limit
	// is never above depthMax.
	Depth int
}

// depthMax bounds the recursion that skips unknown fields, so that the stack stays within a few KiB.
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

// DefaultLimits returns limits that suit every known deployment.
func DefaultLimits() Limits { return defaultLimits }

// orDefault returns l, or the default limits if l is nil.
func (l *Limits) orDefault() *Limits {
	if l == nil {
		return &defaultLimits
	}
	return l
}
