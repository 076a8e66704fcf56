package geometry

// Mem is the kind of memory that a worker's regions lie in.
type Mem uint8

// The kinds of memory.
const (
	MemUnsaid Mem = iota // the worker does not say
	MemVRAM
	MemDRAM
)

// String is the wire's name.
func (m Mem) String() string {
	switch m {
	case MemUnsaid:
	case MemVRAM:
		return "VRAM"
	case MemDRAM:
		return "DRAM"
	}
	return ""
}

// Regions are a worker's cache with its addresses: the Geometry's regions, and where the bytes of each page are. It
// owns all of its memory; nobody may write to its lists.
type Regions struct {
	Geometry
	EngineID string
	Layout   string // such as LBHNC
	Device   uint64
	Mem      Mem
	Spans    []Span // by region

	named   bool     // Spans have names
	members []member // by region
}

// A Span is where a region's blocks are, in bytes: block n is at Base + n*Stride.
type Span struct {
	Name                 string // of the layer, or of the first of several
	Base, Stride, Length uint64 // Length of a block, at most Stride
}

// A member is a layer whose blocks, or a part of them, a region's blocks are.
type member struct {
	layer         string
	region        uint32
	packed        bool // it has a part
	offset, bytes uint64
}

// Bytes are where a page is, in the worker's memory.
func (r *Regions) Bytes(page uint32) (address, length uint64) {
	region, block, share := r.Place(page)
	s := &r.Spans[region]
	length = r.cellBytes(region)
	return s.Base + uint64(block)*s.Stride + uint64(share)*length, length
}

// CellBytes is how long every page is, in bytes; not ok if regions differ, so that no pool of equal pages has them.
func (r *Regions) CellBytes() (bytes uint64, ok bool) {
	for region := range r.Spans {
		if n := r.cellBytes(uint32(region)); region == 0 {
			bytes = n
		} else if n != bytes {
			return 0, false
		}
	}
	return bytes, len(r.Spans) > 0
}

func (r *Regions) cellBytes(region uint32) uint64 { return r.Spans[region].Length / uint64(r.Shares()) }
