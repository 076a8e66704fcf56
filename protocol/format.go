package protocol

import "strconv"

// A Format says in which order the elements of a chunk are stored: LMCache's MemoryFormat, by the value on the wire. PD
// uses KV2LTD, and KVMLA for models with latent attention. A derivative of LMCache-Ascend gives 7 another meaning, so
// values from 7 on are not portable.
type Format uint8

// The formats, with the order of their dimensions: two for key and value, layers, tokens, hidden.
const (
	FormatUndefined    Format = 0
	FormatKV2LTD       Format = 1 // [2, layers, tokens, hidden]
	FormatKVT2D        Format = 2 // [tokens, 2, hidden]
	FormatKV2TD        Format = 3 // [2, tokens, hidden]
	FormatBinary       Format = 4 // opaque
	FormatBinaryBuffer Format = 5 // opaque
	FormatKVMLA        Format = 6 // [1, layers, tokens, head]
	FormatECTD         Format = 7 // [tokens, hidden]
	FormatHSTD         Format = 8 // [tokens, hidden]
	formats            Format = 9
)

var formatTable = [formats]struct {
	name  string
	rank  uint8 // number of dimensions, 0 if there is no shape
	token int8  // index of the dimension that counts tokens, -1 if none
	fixed int8  // index of the dimension that the format prescribes, -1 if none
	value uint32
}{
	FormatUndefined:    {"UNDEFINED", 0, -1, -1, 0},
	FormatKV2LTD:       {"KV_2LTD", 4, 2, 0, 2},
	FormatKVT2D:        {"KV_T2D", 3, 0, 1, 2},
	FormatKV2TD:        {"KV_2TD", 3, 1, 0, 2},
	FormatBinary:       {"BINARY", 0, -1, -1, 0},
	FormatBinaryBuffer: {"BINARY_BUFFER", 0, -1, -1, 0},
	FormatKVMLA:        {"KV_MLA_FMT", 4, 2, 0, 1},
	FormatECTD:         {"EC_TD", 2, 0, -1, 0},
	FormatHSTD:         {"HS_TD", 2, 0, -1, 0},
}

// Valid reports whether LMCache defines f; FormatUndefined is among the defined formats.
func (f Format) Valid() bool { return f < formats }

// String returns LMCache's name of the format.
func (f Format) String() string {
	if !f.Valid() {
		return "Format(" + strconv.Itoa(int(f)) + ")"
	}
	return formatTable[f].name
}

// TokenDim returns the index of the dimension that counts tokens, or -1 for a format without tokens.
//
// NB: LMCache's token_dim() returns 1 for KV_T2D and 0 for KV_2TD, which is the wrong way round. PD uses neither
// format, so TokenDim returns the correct index.
func (f Format) TokenDim() int {
	if !f.Valid() {
		return -1
	}
	return int(formatTable[f].token)
}
