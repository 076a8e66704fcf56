package protocol

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Key names a chunk of one rank of one model: LMCache's CacheEngineKey in the text form of the current revisions
// (V3),
//
//	model@world_size@worker_id@hash@dtype[@tag%value...]
//
// A key of a tenant ends with the tag of the tenant (TenantOf). Two keys are equal if and only if their texts are equal,
// so a node may keep only the text. For that reason only the form that LMCache writes is accepted: decimal numbers
// without leading zeros or plus signs, hex digits in lower case, the current dtype names.
type Key struct {
	Model     string // no '@'
	WorldSize uint32
	WorkerID  int32 // the tensor-parallel rank
	// Hash is the hash as text. LMCache hashes with Python's signed 64-bit hash (the text may start with '-') or with
	// 256-bit functions (a big integer, or bytes with leading zeros).
	Hash  string
	Dtype Dtype
	Tags  []KeyTag // in the order of the text, because the order is part of the identity
}

// A KeyTag is one user-given property of a key.
type KeyTag struct {
	Name  string // no '@', no '%', not empty
	Value string // no '@'
}

// A KeyCode is the kind of a KeyError.
type KeyCode uint8

// The kinds of unusable keys.
const (
	_            KeyCode = iota
	KeyEmpty             // no bytes
	KeyTooLong           // longer than the caller's limit
	KeyEncoding          // not UTF-8
	KeyParts             // fewer than five parts
	KeyModel             // the model is empty or holds '@'
	KeyWorldSize         // not a decimal number from 1
	KeyWorkerID          // not a decimal number
	KeyHash              // not hex digits, with or without '-'
	KeyDtype             // not a current dtype name
	KeyTags              // a part behind the dtype is not name%value
	KeyLayer             // the key of a layer has no layer
	KeyTenant            // the tag of the tenant is not the last tag or not 16 digits, or keys of a batch are of two tenants
	keyCodes
)

var keyTexts = [keyCodes]struct{ field, remedy string }{
	KeyEmpty:     {"text", "send the key's text"},
	KeyTooLong:   {"text", "shorten the model's name or raise Limits.KeyBytes"},
	KeyEncoding:  {"text", "send it as utf-8"},
	KeyParts:     {"text", "write model@world_size@worker_id@hash@dtype"},
	KeyModel:     {"model", "name a model without '@'"},
	KeyWorldSize: {"world_size", "write a positive decimal number without leading zeros"},
	KeyWorkerID:  {"worker_id", "write a decimal number without leading zeros"},
	KeyHash:      {"hash", "write lower-case hex digits"},
	KeyDtype: {"dtype", "use a current name such as bfloat16; keys of revisions before 0.4 start with the engine's " +
		"name and are not read"},
	KeyTags:  {"tag", "write name%value; keys of single layers are for layerwise transfers"},
	KeyLayer: {"layer", "write the layer's number behind the dtype, below 1024"},
	KeyTenant: {"tenant", "write kvft% and the 16 lower-case hex digits of the tenant as the last tag, and send keys of one " +
		"tenant in a batch"},
}

// A KeyError says why a text is not a key.
type KeyError struct {
	Code  KeyCode
	Found string // the faulty part, quoted; at most quoteMax bytes of the part
}

func (e *KeyError) Error() string {
	if e.Code == 0 || e.Code >= keyCodes {
		return "key: invalid"
	}
	return "key: " + keyTexts[e.Code].field + " " + e.Found + ": " + keyTexts[e.Code].remedy
}

func newKeyError(code KeyCode, part []byte) error {
	return &KeyError{code, quoteBytes(part)}
}

// CheckKey checks everything that ParseKey checks, and the length, in one pass. CheckKey allocates only for an error, a
// *KeyError.
func CheckKey(b []byte, maxBytes int) error {
	if len(b) > maxBytes {
		return newKeyError(KeyTooLong, b)
	}
	return parseKeyParts(b, nil)
}

// KeyChecker checks the keys of a batch one after another, with the same result as CheckKey, and checks that all keys
// are of one tenant: a batch belongs to one request, and a request has one cache salt. Most keys of a batch differ only
// in the hash: if all other parts equal the parts of the previous key, KeyChecker checks only the hash. KeyChecker keeps
// a view of the key that it checked last. The zero value is ready to use, for one batch.
type KeyChecker struct {
	last             []byte // the last valid key
	hashFrom, hashTo int    // the range of the hash in that key; to is zero while the range is unknown
	hasTenant        bool   // the batch has had a valid key, so tenant is set
	tenant           uint64 // the tenant of all keys of the batch
}

// Check checks a key as CheckKey does, and checks that its tenant is the tenant of the valid keys before it.
func (c *KeyChecker) Check(b []byte, maxBytes int) error {
	if c.matchesLast(b) && len(b) <= maxBytes {
		return nil
	}
	c.last = nil
	if err := CheckKey(b, maxBytes); err != nil {
		return err
	}
	switch tenant := TenantOf(b); {
	case !c.hasTenant:
		c.tenant, c.hasTenant = tenant, true
	case tenant != c.tenant:
		return newKeyError(KeyTenant, b[max(0, len(b)-TenantBytes):])
	}
	c.last, c.hashTo = b, 0
	return nil
}

// matchesLast reports whether a key differs from the last valid key only in the hash, and has a valid hash.
func (c *KeyChecker) matchesLast(b []byte) bool {
	if c.last == nil {
		return false
	}
	if c.hashTo == 0 {
		c.hashFrom, c.hashTo = hashRange(c.last)
	}
	tail := c.last[c.hashTo:]
	end := len(b) - len(tail)
	return end > c.hashFrom && string(b[end:]) == string(tail) && string(b[:c.hashFrom]) == string(c.last[:c.hashFrom]) &&
		isHash(b[c.hashFrom:end])
}

// hashRange returns the range of the hash in a valid key: the fourth part.
func hashRange(key []byte) (from, to int) {
	for range 3 {
		from += bytes.IndexByte(key[from:], '@') + 1
	}
	return from, from + bytes.IndexByte(key[from:], '@')
}

// ParseKey parses a key. The error is a *KeyError; the key holds copies.
func ParseKey(b []byte) (Key, error) {
	var k Key
	if err := parseKeyParts(b, &k); err != nil {
		return Key{}, err
	}
	return k, nil
}

// isPlainKey reports whether a text is a valid key without tags, as nearly all keys are. It needs a single pass. If the
// result is false, the text may still be a valid key.
func isPlainKey(b []byte) bool {
	at := bytes.IndexByte(b, '@')
	if at <= 0 || !isASCII(b[:at]) {
		return false
	}
	worldSize, end := parseDigits(b, at+1)
	if end < 0 || worldSize == 0 {
		return false
	}
	if _, end = parseDigits(b, end); end < 0 { // A negative worker id is left to the slow path.
		return false
	}
	hash := end
	for end < len(b) && isHexLower[b[end]] {
		end++
	}
	return end > hash && end < len(b) && b[end] == '@' && currentDtype(b[end+1:]) != DtypeNone
}

// parseDigits parses a decimal number with an '@' behind the number, and returns the offset behind the '@', or -1 if
// there is no such number.
func parseDigits(b []byte, from int) (v uint64, end int) {
	at := from
	for ; at < len(b) && b[at]-'0' <= 9 && at-from <= 10; at++ {
		v = 10*v + uint64(b[at]-'0')
	}
	if at == from || at == len(b) || b[at] != '@' || v > 1<<31-1 || b[from] == '0' && at > from+1 {
		return 0, -1
	}
	return v, at + 1
}

// parseKeyParts checks the parts from left to right, and stores the parts in k unless k is nil.
func parseKeyParts(b []byte, k *Key) error {
	if k == nil && isPlainKey(b) {
		return nil
	}
	switch {
	case len(b) == 0:
		return newKeyError(KeyEmpty, b)
	case !isASCII(b) && !utf8.Valid(b):
		return newKeyError(KeyEncoding, b)
	}
	var part [5][]byte
	rest, more := b, true
	for i := range part {
		if !more {
			return newKeyError(KeyParts, b)
		}
		part[i], rest, more = cutKeyPart(rest)
	}
	worldSize, worldOK := parseDecimal(part[1], 1<<31-1)
	workerID, workerOK := parseSignedDecimal(part[2])
	dtype := currentDtype(part[4])
	switch {
	case len(part[0]) == 0:
		return newKeyError(KeyModel, part[0])
	case !worldOK || worldSize == 0:
		return newKeyError(KeyWorldSize, part[1])
	case !workerOK:
		return newKeyError(KeyWorkerID, part[2])
	case !isHash(part[3]):
		return newKeyError(KeyHash, part[3])
	case dtype == DtypeNone:
		return newKeyError(KeyDtype, part[4])
	}
	if k != nil {
		k.Model, k.WorldSize, k.WorkerID = string(part[0]), worldSize, workerID
		k.Hash, k.Dtype = string(part[3]), dtype
	}
	for more {
		var tag []byte
		tag, rest, more = cutKeyPart(rest)
		percent := bytes.IndexByte(tag, '%')
		if percent <= 0 {
			return newKeyError(KeyTags, tag)
		}
		if string(tag[:percent]) == tenantTag && (more || !isTenant(tag[percent+1:])) {
			return newKeyError(KeyTenant, tag)
		}
		if k != nil {
			k.Tags = append(k.Tags, KeyTag{string(tag[:percent]), string(tag[percent+1:])})
		}
	}
	return nil
}

// cutKeyPart returns the parts before and after the first '@'.
func cutKeyPart(b []byte) (before, after []byte, found bool) {
	if i := bytes.IndexByte(b, '@'); i >= 0 {
		return b[:i], b[i+1:], true
	}
	return b, nil, false
}

func parseDecimal(b []byte, limit uint32) (uint32, bool) {
	if len(b) == 0 || len(b) > 10 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	v := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = 10*v + uint64(c-'0')
	}
	return uint32(v), v <= uint64(limit)
}

func parseSignedDecimal(b []byte) (int32, bool) {
	if len(b) > 0 && b[0] == '-' {
		v, ok := parseDecimal(b[1:], 1<<31-1)
		return -int32(v), ok && v != 0
	}
	v, ok := parseDecimal(b, 1<<31-1)
	return int32(v), ok
}

// isHash reports whether b consists of lower-case hex digits. Only integers have a sign, and integers have no
// leading zeros; a text without a sign may be the hex form of bytes, which may have leading zeros.
func isHash(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		if b = b[1:]; len(b) > 0 && b[0] == '0' {
			return false
		}
	}
	for _, c := range b {
		if !isHexLower[c] {
			return false
		}
	}
	return len(b) > 0
}

// isHexLower holds true for each digit of a hash.
var isHexLower = func() (t [256]bool) {
	for _, c := range []byte("0123456789abcdef") {
		t[c] = true
	}
	return t
}()

// AppendTo appends the key's text. If Validate refuses the key, the text cannot be parsed back.
func (k *Key) AppendTo(b []byte) []byte {
	b = append(b, k.Model...)
	b = strconv.AppendUint(append(b, '@'), uint64(k.WorldSize), 10)
	b = strconv.AppendInt(append(b, '@'), int64(k.WorkerID), 10)
	b = append(append(b, '@'), k.Hash...)
	b = append(append(b, '@'), k.Dtype.String()...)
	for i := range k.Tags {
		b = append(append(b, '@'), k.Tags[i].Name...)
		b = append(append(b, '%'), k.Tags[i].Value...)
	}
	return b
}

// String returns the key's text.
func (k *Key) String() string { return string(k.AppendTo(nil)) }

// Validate checks that the key has a text and that parsing this text gives the key. The error is a *KeyError.
func (k *Key) Validate() error {
	if strings.Contains(k.Model, "@") {
		return newKeyError(KeyModel, []byte(k.Model))
	}
	for _, t := range k.Tags {
		if strings.ContainsAny(t.Name, "@%") || strings.Contains(t.Value, "@") {
			return newKeyError(KeyTags, []byte(t.Name+"%"+t.Value))
		}
	}
	if strings.Contains(k.Hash, "@") {
		return newKeyError(KeyHash, []byte(k.Hash))
	}
	return parseKeyParts(k.AppendTo(nil), nil)
}
