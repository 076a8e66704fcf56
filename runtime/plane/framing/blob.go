package framing

import (
	"encoding/binary"
	"fmt"

	"github.com/kvferry/kvferry/identity"
)

// MaxAddressBytes is the length of the longest address in a blob.
const MaxAddressBytes = 512

const (
	blobVersion   = 2
	addressOffset = 1 + 2
	tokenBytes    = len(identity.Token{})
	minBlobBytes  = addressOffset + tokenBytes
)

// AppendBlob appends what every peer needs to dial: version, length and bytes of the address. The blob that a peer is
// given ends with the peer's own token.
func AppendBlob(b []byte, address string) []byte {
	b = binary.LittleEndian.AppendUint16(append(b, blobVersion), uint16(len(address)))
	return append(b, address...)
}

// ParseBlob parses the blob of a peer's plane. Its error wraps ErrMalformed.
func ParseBlob(b []byte) (token identity.Token, address string, err error) {
	if len(b) < minBlobBytes || len(b) > minBlobBytes+MaxAddressBytes {
		return token, "", fmt.Errorf("%w: blob of %d bytes; %d to %d are expected", ErrMalformed, len(b), minBlobBytes,
			minBlobBytes+MaxAddressBytes)
	}
	if b[0] != blobVersion {
		return token, "", fmt.Errorf("%w: blob version %d; %d is expected", ErrMalformed, b[0], blobVersion)
	}
	if n := int(binary.LittleEndian.Uint16(b[1:])); n != len(b)-minBlobBytes {
		return token, "", fmt.Errorf("%w: blob states an address of %d bytes and has %d", ErrMalformed, n, len(b)-minBlobBytes)
	}
	return identity.Token(b[len(b)-tokenBytes:]), string(b[addressOffset : len(b)-tokenBytes]), nil
}
