package protocol

import "encoding/binary"

// The writers append one msgpack value in its shortest form, as msgspec does: integers that are
// not negative in unsigned forms, text as str, bytes as bin.

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return append(b, 0xcd, byte(v>>8), byte(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}

func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(b, uint64(v))
	case v >= -1<<5:
		return append(b, byte(v))
	case v >= -1<<7:
		return append(b, 0xd0, byte(v))
	case v >= -1<<15:
		return append(b, 0xd1, byte(v>>8), byte(v))
	case v >= -1<<31:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

func appendStr[T string | []byte](b []byte, s T) []byte {
	switch n := len(s); {
	case n < 1<<5:
		b = append(b, 0xa0|byte(n))
	case n < 1<<8:
		b = append(b, 0xd9, byte(n))
	case n < 1<<16:
		b = append(b, 0xda, byte(n>>8), byte(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
}

func appendBin(b, s []byte) []byte {
	switch n := len(s); {
	case n < 1<<8:
		b = append(b, 0xc4, byte(n))
	case n < 1<<16:
		b = append(b, 0xc5, byte(n>>8), byte(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, s...)
}

func appendArrayHeader(b []byte, n int) []byte { return appendCount(b, n, 0x90, 0xdc) }
func appendMapHeader(b []byte, n int) []byte   { return appendCount(b, n, 0x80, 0xde) }

func appendCount(b []byte, n int, fix, wide byte) []byte {
	switch {
	case n < 1<<4:
		return append(b, fix|byte(n))
	case n < 1<<16:
		return append(b, wide, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, wide+1), uint32(n))
}

// appendTag appends the header of a map with n fields and a tag, and the tag.
func appendTag(b []byte, tag Tag, n int) []byte {
	b = appendMapHeader(b, n+1)
	b = appendStr(b, tagField)
	return appendStr(b, tag.String())
}

func appendUints(b []byte, vs []uint64) []byte {
	b = appendArrayHeader(b, len(vs))
	for _, v := range vs {
		b = appendUint(b, v)
	}
	return b
}

func appendInts(b []byte, vs []int64) []byte {
	b = appendArrayHeader(b, len(vs))
	for _, v := range vs {
		b = appendInt(b, v)
	}
	return b
}

func appendUUIDs(b []byte, vs []UUID) []byte {
	b = appendArrayHeader(b, len(vs))
	for _, v := range vs {
		b = appendUUID(b, v)
	}
	return b
}

func appendTexts(b []byte, vs [][]byte) []byte {
	b = appendArrayHeader(b, len(vs))
	for _, v := range vs {
		b = appendStr(b, v)
	}
	return b
}
