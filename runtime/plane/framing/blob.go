package framing

import (
	"encoding/binary"
	"fmt"
)

// Token is the secret that a plane's blob carries and a hello presents.
type Token [16]byte

// AddressMax bounds the address in a blob, in bytes.
const AddressMax = 512

const (
	blobVersion  = 1
	blobBytesMin = 1 + 16 + 2
)

// AppendBlob appends what a peer needs to dial: version, token, length and bytes of the address.
func AppendBlob(b []byte, token Token, address string) []byte {
	b = append(append(b, blobVersion), token[:]...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(address)))
	return append(b, address...)
}

// ParseBlob reads a peer's blob. Its error wraps ErrMalformed.
func ParseBlob(b []byte) (token Token, address string, err error) {
	if len(b) < blobBytesMin || len(b) > blobBytesMin+AddressMax {
		return token, "", fmt.Errorf("%w: blob of %d bytes; it has %d to %d", ErrMalformed, len(b), blobBytesMin, blobBytesMin+AddressMax)
	}
	if b[0] != blobVersion {
		return token, "", fmt.Errorf("%w: blob version %d; %d is spoken here", ErrMalformed, b[0], blobVersion)
	}
	if n := int(binary.LittleEndian.Uint16(b[17:])); n != len(b)-blobBytesMin {
		return token, "", fmt.Errorf("%w: blob says %d bytes of address and has %d", ErrMalformed, n, len(b)-blobBytesMin)
	}
	return Token(b[1:17]), string(b[blobBytesMin:]), nil
}
