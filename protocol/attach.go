package protocol

// What an engine's process and the agent of its host say to each other over a Unix socket: docs/protocol-agent.md. Each
// message is one frame, four bytes of length (little-endian) and so many bytes of msgpack. The socket is a stream: what
// is said arrives once and in order, or the connection ends.

// AttachVersion is the version of these messages. Both ends name theirs first; the agent refuses another.
const AttachVersion = 1

// An AttachRequest is the first message of a connection: engine to agent, answered by one AttachResponse. With a
// Session it goes on with that one, which only the process that began it may.
type AttachRequest struct {
	Version uint32 // v
	Name    []byte // name: what the engine calls itself, for people; may be empty
	Session uint64 // session: to go on with; 0 begins one
	Life    UUID   // life: of the agent that the session is of; zero without one
	// Open is each call that was sent and of which the engine has not had everything: its answer, and its memory where
	// that was held. Of others the agent forgets what it keeps, an answer that was lost included.
	Open []uint64 // open
	// Process is the number that the driver of a device has for the engine's process, which the agent admits to its memory;
	// 0: the engine has no device.
	Process uint32 // device_process
	// Adopts says that the engine has the pool as its own memory from now on, where that is of blocks which it names by
	// number: no other engine may have blocks there meanwhile.
	Adopts bool // adopts
}

// An AttachResponse answers it. Where Code is 0 and not all pages are memory of a device (DeviceKey without DevicePages)
// the first byte of its frame carries a file descriptor: the memory that pages are in, to be mapped for reading and
// writing. It is the same file for as long as the agent lives.
type AttachResponse struct {
	Version uint32 // v
	Session uint64 // session: that stands now; numbers of calls are its own
	Life    UUID   // life: the agent's
	// Resumed says that the session is the one that was asked for. Otherwise what was held in that one is gone, and is a
	// miss.
	Resumed bool   // resumed
	Code    uint32 // code: why the engine is not attached; 0 is attached
	Reason  []byte // reason: Code for people, and what helps
	// Page i begins at Offset + i*PageBytes of the file, or of what DeviceKey leads to.
	Offset, PageBytes uint64
	Pages             uint32   // pages: of the pool
	Layers            uint32   // layers: pages of a chunk that comes layer by layer; 1: none does
	Window            uint32   // window: calls that may be open at a time
	Keys              uint32   // keys: of one call
	Bytes             uint32   // bytes: of one message to the agent
	Sides             [][]byte // sides: of "sender", "receiver", "sharing", "blocks" those that the node has
	Producer          []byte   // producer: where a node with "blocks" takes registrations, as a call's producers name it
	// DeviceKey is what AscendCL of the engine's process imports the pool by (aclrtIpcMemImportByKey), where that is memory
	// of a device; empty: it is a file. Device is the device's number on its host, by which processes that see other devices
	// find it, DeviceBytes how much is used from where the key leads. These two are there also when the engine is turned
	// away, so that it can say next time what number its process has there.
	DeviceKey   []byte // device_key
	Device      uint32 // device
	DeviceBytes uint64 // device_bytes
	// DevicePages are those of a second pool, beside the file: page DeviceFrom + i begins DeviceOffset + i*PageBytes behind
	// what DeviceKey leads to. 0: DeviceKey, where there is one, leads to all pages, and there is no file.
	DevicePages  uint32 // device_pages
	DeviceFrom   uint32 // device_from
	DeviceOffset uint64 // device_offset
	// What a whole chunk is, as LMCache describes it.
	Format Format // fmt
	Shape  Shape  // shape
	Dtype  Dtype  // dtype
}

// Fields of AttachRequest.
const (
	_ = iota // the tag
	attachVersion
	attachName
	attachSession
	attachLife
	attachOpen
	attachProcess
	attachAdopts
)

// Fields of AttachResponse.
const (
	_ = iota // the tag
	attachedVersion
	attachedSession
	attachedLife
	attachedResumed
	attachedCode
	attachedReason
	attachedOffset
	attachedPageBytes
	attachedPages
	attachedLayers
	attachedWindow
	attachedKeys
	attachedBytes
	attachedSides
	attachedProducer
	attachedDeviceKey
	attachedDevice
	attachedDeviceBytes
	attachedDevicePages
	attachedDeviceFrom
	attachedDeviceOffset
	attachedFormat
	attachedShape
	attachedDtype
)

var (
	attachRequestSchema = schema{
		name: "KvfAttachRequest", tagged: true,
		names:    []string{tagField, "v", "name", "session", "life", "open", "device_process", "adopts"},
		required: 1 << attachVersion,
	}
	attachResponseSchema = schema{
		name: "KvfAttachResponse", tagged: true,
		names: []string{
			tagField, "v", "session", "life", "resumed", "code", "reason", "offset", "page_bytes", "pages", "layers", "window",
			"keys", "bytes", "sides", "producer", "device_key", "device", "device_bytes", "device_pages",
			"device_from", "device_offset", "fmt", "shape", "dtype",
		},
		required: 1<<attachedVersion | 1<<attachedFormat | 1<<attachedShape | 1<<attachedDtype,
	}
)

// Append appends the message to b.
func (m *AttachRequest) Append(b []byte) []byte {
	b = appendTag(b, TagAttachRequest,
		1+ones(len(m.Name) > 0, m.Session != 0, m.Life != UUID{}, len(m.Open) > 0, m.Process != 0, m.Adopts))
	b = appendUint(appendStr(b, "v"), uint64(m.Version))
	b = appendNonEmptyText(b, "name", m.Name)
	b = appendNonZero(b, "session", m.Session)
	b = appendNonZeroUUID(b, "life", m.Life)
	b = appendNonEmpty(b, "open", m.Open)
	b = appendNonZero(b, "device_process", uint64(m.Process))
	return appendTrue(b, "adopts", m.Adopts)
}

// Decode fills m from b; Name is a view of it. The error is a *DecodeError.
func (m *AttachRequest) Decode(b []byte, lim *Limits) error {
	*m = AttachRequest{Open: m.Open[:0]}
	r := open(b, lim)
	r.expectTag(TagAttachRequest)
	w := fields{r: &r, schema: &attachRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case attachVersion:
			m.Version = r.uint32()
		case attachName:
			m.Name = r.text()
		case attachSession:
			m.Session = r.uint64()
		case attachLife:
			m.Life = r.uuid()
		case attachOpen:
			m.Open = r.uint64s(m.Open)
		case attachProcess:
			m.Process = r.uint32()
		case attachAdopts:
			m.Adopts = r.boolean()
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *AttachResponse) Append(b []byte) []byte {
	b = appendTag(b, TagAttachResponse, 4+ones(m.Session != 0, m.Life != UUID{}, m.Resumed, m.Code != 0,
		len(m.Reason) > 0, m.Offset != 0, m.PageBytes != 0, m.Pages != 0, m.Layers != 0, m.Window != 0, m.Keys != 0,
		m.Bytes != 0, len(m.Sides) > 0, len(m.Producer) > 0, len(m.DeviceKey) > 0, m.Device != 0, m.DeviceBytes != 0,
		m.DevicePages != 0, m.DeviceFrom != 0, m.DeviceOffset != 0))
	b = appendUint(appendStr(b, "v"), uint64(m.Version))
	b = appendNonZero(b, "session", m.Session)
	b = appendNonZeroUUID(b, "life", m.Life)
	b = appendTrue(b, "resumed", m.Resumed)
	b = appendNonZero(b, "code", uint64(m.Code))
	b = appendNonEmptyText(b, "reason", m.Reason)
	b = appendNonZero(b, "offset", m.Offset)
	b = appendNonZero(b, "page_bytes", m.PageBytes)
	b = appendNonZero(b, "pages", uint64(m.Pages))
	b = appendNonZero(b, "layers", uint64(m.Layers))
	b = appendNonZero(b, "window", uint64(m.Window))
	b = appendNonZero(b, "keys", uint64(m.Keys))
	b = appendNonZero(b, "bytes", uint64(m.Bytes))
	b = appendNonEmptyTexts(b, "sides", m.Sides)
	b = appendNonEmptyText(b, "producer", m.Producer)
	b = appendNonEmptyText(b, "device_key", m.DeviceKey)
	b = appendNonZero(b, "device", uint64(m.Device))
	b = appendNonZero(b, "device_bytes", m.DeviceBytes)
	b = appendNonZero(b, "device_pages", uint64(m.DevicePages))
	b = appendNonZero(b, "device_from", uint64(m.DeviceFrom))
	b = appendNonZero(b, "device_offset", m.DeviceOffset)
	b = appendUint(appendStr(b, "fmt"), uint64(m.Format))
	b = appendShape(appendStr(b, "shape"), m.Shape)
	return appendStr(appendStr(b, "dtype"), m.Dtype.String())
}

// Decode fills m from b; Reason, Sides, Producer and DeviceKey are views of it. The error is a *DecodeError.
func (m *AttachResponse) Decode(b []byte, lim *Limits) error {
	*m = AttachResponse{Sides: m.Sides[:0]}
	r := open(b, lim)
	r.expectTag(TagAttachResponse)
	w := fields{r: &r, schema: &attachResponseSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case attachedVersion:
			m.Version = r.uint32()
		case attachedSession:
			m.Session = r.uint64()
		case attachedLife:
			m.Life = r.uuid()
		case attachedResumed:
			m.Resumed = r.boolean()
		case attachedCode:
			m.Code = r.uint32()
		case attachedReason:
			m.Reason = r.text()
		case attachedOffset:
			m.Offset = r.uint64()
		case attachedPageBytes:
			m.PageBytes = r.uint64()
		case attachedPages:
			m.Pages = r.uint32()
		case attachedLayers:
			m.Layers = r.uint32()
		case attachedWindow:
			m.Window = r.uint32()
		case attachedKeys:
			m.Keys = r.uint32()
		case attachedBytes:
			m.Bytes = r.uint32()
		case attachedSides:
			m.Sides = r.texts(m.Sides)
		case attachedProducer:
			m.Producer = r.text()
		case attachedDeviceKey:
			m.DeviceKey = r.text()
		case attachedDevice:
			m.Device = r.uint32()
		case attachedDeviceBytes:
			m.DeviceBytes = r.uint64()
		case attachedDevicePages:
			m.DevicePages = r.uint32()
		case attachedDeviceFrom:
			m.DeviceFrom = r.uint32()
		case attachedDeviceOffset:
			m.DeviceOffset = r.uint64()
		case attachedFormat:
			m.Format = r.format()
		case attachedShape:
			r.shape(&m.Shape)
		case attachedDtype:
			m.Dtype = r.dtype()
		}
	}
	w.close()
	r.end()
	return r.result()
}
