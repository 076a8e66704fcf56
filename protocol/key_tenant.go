package protocol

import (
	"encoding/binary"
	"encoding/hex"
)

// The key of a chunk of a tenant ends with a tag that names the tenant,
//
//	model@world_size@worker_id@hash@dtype[@tag%value...]@kvft%9f86d081884c7d65
//
// where the digits are the tenant as a number of 64 bits, which is not zero. A key without the tag is a key of the
// default tenant. The tag has one form and one place: a key that has it elsewhere, twice or in another form is
// malformed. So the tenant is a function of the text, and equal keys are keys of one tenant.

// tenantTag is the name of the tag; tenantPrefix is what stands before the digits.
const (
	tenantTag    = "kvft"
	tenantPrefix = "@" + tenantTag + "%"
	tenantDigits = 16
)

// TenantBytes is the number of bytes by which a tenant makes a key longer.
const TenantBytes = len(tenantPrefix) + tenantDigits

// TenantOf returns the tenant of a valid key, or of the valid key of a layer; 0 is the default tenant. For a text that
// is not a key the result is 0, or the tenant that the text ends with.
func TenantOf(key []byte) uint64 {
	from := len(key) - TenantBytes
	if from < 0 || string(key[from:from+len(tenantPrefix)]) != tenantPrefix || !isTenant(key[from+len(tenantPrefix):]) {
		return 0
	}
	var b [tenantDigits / 2]byte
	_, _ = hex.Decode(b[:], key[from+len(tenantPrefix):])
	return binary.BigEndian.Uint64(b[:])
}

// AppendTenant appends the tag of a tenant to the text of a key that has none. The default tenant has no tag.
func AppendTenant(key []byte, tenant uint64) []byte {
	if tenant == 0 {
		return key
	}
	var b [tenantDigits / 2]byte
	binary.BigEndian.PutUint64(b[:], tenant)
	return hex.AppendEncode(append(key, tenantPrefix...), b[:])
}

// isTenant reports whether a tag's value is a tenant: 16 lower-case hex digits that are not all zero.
func isTenant(value []byte) bool {
	if len(value) != tenantDigits {
		return false
	}
	isZero := true
	for _, c := range value {
		if !isHexLower[c] {
			return false
		}
		isZero = isZero && c == '0'
	}
	return !isZero
}
