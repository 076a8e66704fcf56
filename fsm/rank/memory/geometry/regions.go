package geometry

// Mem is the kind of memory in which a worker's regions are.
type Mem uint8

// The kinds of memory.
const (
	MemUnknown Mem = iota // the worker does not say
	MemVRAM
	MemDRAM
)

// String returns the name of the kind on the wire, or "" for MemUnknown.
func (m Mem) String() string {
	switch m {
	case MemUnknown:
	case MemVRAM:
		return "VRAM"
	case MemDRAM:
		return "DRAM"
	}
	return ""
}

// Regions is a worker's cache with its addresses: the regions of the Geometry, and where the bytes of each page are.
// Regions owns all of this memory; no other code may write to the lists.
type Regions struct {
	Geometry
	EngineID string
	Layout   string // such as LBHNC
	Device   uint64
	Mem      Mem
	Spans    []Span // by region

	hasNames bool     // the spans have names
	members  []member // the layers of the regions, if the worker says them
}

// A Span says where the blocks of a region are, in bytes: block n begins at Base + n*Stride.
type Span struct {
	Name                 string // name of the layer, or of the first of several layers
	Base, Stride, Length uint64 // Length is the length of a block, at most Stride
}

// A member is a layer that a region holds: the region's blocks, or a part of each block, are blocks of the layer.
type member struct {
	layer         string
	region        uint32
	packed        bool // the layer has only a part of each block: bytes bytes from offset on
	offset, bytes uint64
}

// LocatePage returns the address of a page in the worker's memory, and its length in bytes.
func (r *Regions) LocatePage(page uint32) (address, length uint64) {
	region, block, share := r.PlaceOf(page)
	s := &r.Spans[region]
	length = r.regionCellBytes(region)
	return s.Base + uint64(block)*s.Stride + uint64(share)*length, length
}

// CellBytes returns the length of every page in bytes. CellBytes reports false if the lengths differ between regions,
// so that no pool of equal pages can hold them.
func (r *Regions) CellBytes() (bytes uint64, ok bool) {
	for region := range r.Spans {
		if n := r.regionCellBytes(uint32(region)); region == 0 {
			bytes = n
		} else if n != bytes {
			return 0, false
		}
	}
	return bytes, len(r.Spans) > 0
}

// regionCellBytes returns the length in bytes of the pages of a region.
func (r *Regions) regionCellBytes(region uint32) uint64 {
	return r.Spans[region].Length / uint64(r.SharesPerBlock())
}
