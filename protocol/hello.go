package protocol

import "strconv"

// Capabilities of a peer, bits of HelloExt.Caps.
const (
	CapCommit uint64 = 1 << iota // takes AllocRequests without keys, which commit and abort grants
	CapLease                     // grants for a stated time, and keeps to it
	CapPull                      // takes PullReadyNotifs without keys, which withdraw offers
	CapRenew                     // takes RenewRequests for the grants it gave
	CapRecall                    // answers CacheQueryRequests with grants, and takes those without keys, which end them
	CapLayers                    // takes single layers of chunks; who says Layers without it takes all of a chunk at once
)

// HelloExt is what kvferry adds to step 1 of the handshake, alike in request and response. Its
// presence is how two kvferry nodes know each other.
type HelloExt struct {
	ProtoMin, ProtoMax uint32   // kvf_proto: versions spoken, both included; its presence is HasExt
	Incarnation        UUID     // kvf_inc: the name that the speaker's life has for this peer alone
	Caps               uint64   // kvf_caps: Cap bits; unknown ones are kept
	Window             uint32   // kvf_window: requests at a time on one connection to an alloc port; 0 is unsaid: 1
	PageBytes          uint64   // kvf_page_bytes: of the speaker's pools; 0 is unsaid
	Layout             Layout   // kvf_fmt, kvf_shape, kvf_dtype: of the speaker's chunks; zero is unsaid
	Planes             [][]byte // kvf_planes: names of data planes, in the order of the speaker's configuration
	Blobs              [][]byte // kvf_blobs: each plane's own words, for this peer alone; as long as Planes or empty
	Code               uint32   // kvf_code: why the handshake is refused; 0 if it is not
	Reason             []byte   // kvf_reason: the same for people
	Stamps             Stamps   // of the speaker
	Layers             uint32   // kvf_layers: of a chunk, each in a page of its own; 0: a page has a whole chunk
	Carries            uint32   // kvf_carries: most bytes of chunks that a request to its alloc port may carry; 0: none
	Geometry           []uint64 // kvf_geometry: what lies in which page of who registers blocks (fsm/rank/memory/geometry); else empty
}

// Fields of HelloExt, counted from the first one.
const (
	helloProto = iota
	helloIncarnation
	helloCaps
	helloWindow
	helloPageBytes
	helloFormat
	helloShape
	helloDtype
	helloPlanes
	helloBlobs
	helloCode
	helloReason
	helloClock
	helloEcho
	helloLayers
	helloGeometry
	helloCarries
)

// helloLayout are the fields of a layout. They come together: half a layout describes no chunk, and whoever kept it
// could not say it again.
const helloLayout uint64 = 1<<helloFormat | 1<<helloShape | 1<<helloDtype

// helloNames are the fields that follow a message's own.
var helloNames = []string{
	"kvf_proto", "kvf_inc", "kvf_caps", "kvf_window", "kvf_page_bytes", "kvf_fmt", "kvf_shape", "kvf_dtype",
	"kvf_planes", "kvf_blobs", "kvf_code", "kvf_reason", "kvf_clock_ns", "kvf_echo_ns",
	"kvf_layers", "kvf_geometry", "kvf_carries",
}

// emptied returns no extension, and keeps the slices for the next.
func (e *HelloExt) emptied() HelloExt {
	return HelloExt{Planes: e.Planes[:0], Blobs: e.Blobs[:0], Geometry: e.Geometry[:0]}
}

func (e *HelloExt) decode(r *reader, field int) {
	switch field {
	case helloProto:
		e.decodeProto(r)
	case helloIncarnation:
		e.Incarnation = r.uuid()
	case helloCaps:
		e.Caps = r.uint64()
	case helloWindow:
		e.Window = r.uint32()
	case helloPageBytes:
		e.PageBytes = r.uint64()
	case helloFormat:
		e.Layout.Format = r.format()
	case helloShape:
		r.shape(&e.Layout.Shape)
	case helloDtype:
		e.Layout.Dtype = r.dtype()
	case helloPlanes:
		e.Planes = r.planes(e.Planes)
	case helloBlobs:
		e.Blobs = r.blobs(e.Blobs)
	case helloCode:
		e.Code = r.uint32()
	case helloReason:
		e.Reason = r.text()
	case helloLayers:
		e.Layers = r.uint32()
	case helloGeometry:
		e.Geometry = r.uint64s(e.Geometry)
	case helloCarries:
		e.Carries = r.uint32()
	default:
		e.Stamps.decode(r, field-helloClock)
	}
}

func (e *HelloExt) decodeProto(r *reader) {
	at := r.off
	if n := r.arrayUpTo(2, ""); r.ok() && n != 2 {
		r.fail(DecodeLengthMismatch, at, strconv.Itoa(n)+" elements", "2")
		return
	}
	e.ProtoMin, e.ProtoMax = r.uint32(), r.uint32()
	if r.ok() && e.ProtoMin > e.ProtoMax {
		r.fail(DecodeOutOfRange, at, strconv.Itoa(int(e.ProtoMin))+" to "+strconv.Itoa(int(e.ProtoMax)), "the smaller first")
	}
}

// finish settles, behind the last field, whether there is an extension; first is where the
// extension's fields start in the schema.
func (e *HelloExt) finish(w *fields, first int) (present bool) {
	if !w.has(first + helloProto) {
		*e = e.emptied()
		return false
	}
	if given := w.seen >> first & helloLayout; given != 0 {
		w.demand((helloLayout &^ given) << first)
	}
	if len(e.Blobs) > 0 {
		w.r.parallel("kvf_blobs", w.r.off, len(e.Blobs), "kvf_planes", len(e.Planes))
	}
	return true
}

// count says how many fields append will write.
func (e *HelloExt) count() int {
	n := 1 + e.Stamps.count() + ones(e.Incarnation != UUID{}, e.Caps != 0, e.Window != 0, e.PageBytes != 0,
		len(e.Planes) > 0, len(e.Blobs) > 0, e.Code != 0, len(e.Reason) > 0, e.Layers != 0, len(e.Geometry) > 0,
		e.Carries != 0)
	if e.Layout != (Layout{}) {
		n += 3
	}
	return n
}

func (e *HelloExt) append(b []byte) []byte {
	b = appendArrayHeader(appendStr(b, "kvf_proto"), 2)
	b = appendUint(b, uint64(e.ProtoMin))
	b = appendUint(b, uint64(e.ProtoMax))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZero(b, "kvf_caps", e.Caps)
	b = appendNonZero(b, "kvf_window", uint64(e.Window))
	b = appendNonZero(b, "kvf_page_bytes", e.PageBytes)
	if e.Layout != (Layout{}) {
		b = appendUint(appendStr(b, "kvf_fmt"), uint64(e.Layout.Format))
		b = appendShape(appendStr(b, "kvf_shape"), e.Layout.Shape)
		b = appendStr(appendStr(b, "kvf_dtype"), e.Layout.Dtype.String())
	}
	if len(e.Planes) > 0 {
		b = appendStrs(b, "kvf_planes", e.Planes)
	}
	b = appendBlobs(b, e.Blobs)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonEmptyText(b, "kvf_reason", e.Reason)
	b = e.Stamps.append(b)
	b = appendNonZero(b, "kvf_layers", uint64(e.Layers))
	b = appendNonEmpty(b, "kvf_geometry", e.Geometry)
	return appendNonZero(b, "kvf_carries", uint64(e.Carries))
}

// planes appends the names of data planes to vs.
func (r *reader) planes(vs [][]byte) [][]byte {
	for n := r.arrayUpTo(r.lim.PlaneCount, "PlaneCount"); n > 0 && r.ok(); n-- {
		vs = append(vs, r.text())
	}
	return vs
}

// blobs appends what data planes say to vs.
func (r *reader) blobs(vs [][]byte) [][]byte {
	for n := r.arrayUpTo(r.lim.PlaneCount, "PlaneCount"); n > 0 && r.ok(); n-- {
		vs = append(vs, r.bin())
	}
	return vs
}

func appendBlobs(b []byte, blobs [][]byte) []byte {
	if len(blobs) == 0 {
		return b
	}
	b = appendArrayHeader(appendStr(b, "kvf_blobs"), len(blobs))
	for _, blob := range blobs {
		b = appendBin(b, blob)
	}
	return b
}
