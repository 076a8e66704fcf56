package protocol

import "strconv"

// A Dtype is the type of an element. The zero value is no dtype.
type Dtype uint8

// The dtypes that LMCache can name.
const (
	DtypeNone        Dtype = iota // no dtype; never valid on the wire
	DtypeHalf                     // torch.float16
	DtypeBFloat16                 // torch.bfloat16
	DtypeFloat                    // torch.float32
	DtypeDouble                   // torch.float64
	DtypeInt8                     // torch.int8
	DtypeUint8                    // torch.uint8; "fp8" to the oldest revisions
	DtypeInt16                    // torch.int16
	DtypeInt32                    // torch.int32
	DtypeInt64                    // torch.int64
	DtypeBool                     // torch.bool
	DtypeFP8E4M3FN                // torch.float8_e4m3fn
	DtypeFP8E4M3FNUZ              // torch.float8_e4m3fnuz
	DtypeFP8E5M2                  // torch.float8_e5m2
	DtypeFP8E5M2FNUZ              // torch.float8_e5m2fnuz
	dtypes
)

var dtypeTable = [dtypes]struct {
	name string
	size uint64
}{
	DtypeHalf:        {"half", 2},
	DtypeBFloat16:    {"bfloat16", 2},
	DtypeFloat:       {"float", 4},
	DtypeDouble:      {"double", 8},
	DtypeInt8:        {"int8", 1},
	DtypeUint8:       {"uint8", 1},
	DtypeInt16:       {"int16", 2},
	DtypeInt32:       {"int32", 4},
	DtypeInt64:       {"int64", 8},
	DtypeBool:        {"bool", 1},
	DtypeFP8E4M3FN:   {"fp8_e4m3fn", 1},
	DtypeFP8E4M3FNUZ: {"fp8_e4m3fnuz", 1},
	DtypeFP8E5M2:     {"fp8_e5m2", 1},
	DtypeFP8E5M2FNUZ: {"fp8_e5m2fnuz", 1},
}

// oldDtypes holds the names that only older revisions write. "fp8_e4m3" was the name of both e4m3 forms; it is read as
// DtypeFP8E4M3FN, which all hardware except AMD's uses.
var oldDtypes = [...]struct {
	name  string
	dtype Dtype
}{
	{"fp8", DtypeUint8},
	{"fp8_e4m3", DtypeFP8E4M3FN},
}

// ParseDtype returns the dtype with the given name, as any revision writes names.
func ParseDtype(name []byte) (Dtype, bool) {
	if d := currentDtype(name); d != DtypeNone {
		return d, true
	}
	for _, old := range oldDtypes {
		if old.name == string(name) {
			return old.dtype, true
		}
	}
	return DtypeNone, false
}

// currentDtype returns the dtype with the given name, as current revisions write names, or DtypeNone.
func currentDtype(name []byte) Dtype {
	for d := DtypeNone + 1; d < dtypes; d++ {
		if dtypeTable[d].name == string(name) {
			return d
		}
	}
	return DtypeNone
}

// String returns the name that current revisions write; for DtypeNone it returns an empty text.
func (d Dtype) String() string {
	if d >= dtypes {
		return "Dtype(" + strconv.Itoa(int(d)) + ")"
	}
	return dtypeTable[d].name
}

// Valid reports whether d is a dtype.
func (d Dtype) Valid() bool { return d > DtypeNone && d < dtypes }

// ElementBytes returns the number of bytes of an element, or 0 if d is not a dtype.
func (d Dtype) ElementBytes() uint64 {
	if d >= dtypes {
		return 0
	}
	return dtypeTable[d].size
}
