// Package sharedlog encodes and decodes the requests of directories to the log that the directories share, the log's
// replies, and the entries in the log. A request appends an entry, or reads the entries behind a position. The driver
// carries requests out on the service that keeps the log. An entry is read by other directories, which may run another
// release: it begins with a version and ends with a checksum, so that bytes that another program put into the log are
// not mistaken for an entry.
//
// The encodings are bounded: a decoder allocates no more memory than the received bytes justify. Decoded values are
// views of the decoded bytes.
package sharedlog

import (
	"encoding/binary"
	"errors"
)

// ErrFormat reports that bytes are not in a form of this package.
var ErrFormat = errors.New("sharedlog: not of this form, cut short, or changed on its way")

// ErrVersion reports an entry whose encoding has another version than Version, written by a directory of another release.
var ErrVersion = errors.New("sharedlog: an entry of another version")

// A Position is the place of an entry in the log: later entries have greater positions. The log chooses the positions.
// The zero Position is before all entries.
type Position struct{ Major, Minor uint64 }

// Less reports whether p is before o.
func (p Position) Less(o Position) bool {
	return p.Major < o.Major || p.Major == o.Major && p.Minor < o.Minor
}

// A Request is the request of a directory to the log: to append an entry, or to read entries.
type Request struct {
	// Entry is appended if it is not nil. The log then keeps at least about the entries from Before on; if Before is
	// zero, about the last Keep entries.
	Entry  []byte
	Keep   uint32
	Before Position
	// Without an Entry, the request reads the first Limit entries after After.
	After Position
	Limit uint32
}

// A Reply is the log's reply to a Request.
type Reply struct {
	// Last is the position of the last entry in the log, including an entry that was just appended; zero: the log is
	// empty.
	Last    Position
	Entries []StoredEntry
}

// A StoredEntry is an entry that was read, with its position.
type StoredEntry struct {
	At    Position
	Entry []byte
}

// The first byte of each form.
const (
	formAppend = 'A'
	formRead   = 'R'
	formReply  = 'L'
	formEntry  = 'E' // followed by the version
)

const checksumBytes = 8

// checksum returns the FNV-1a hash of b. It detects accidental changes only: a program that may write to the log may
// write anything.
func checksum(b []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range b {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}

// appendChecksum appends the checksum of the bytes of b from offset from on.
func appendChecksum(b []byte, from int) []byte {
	return binary.BigEndian.AppendUint64(b, checksum(b[from:]))
}

// cutChecksum returns the bytes before the checksum, and reports whether the checksum is right.
func cutChecksum(b []byte) ([]byte, bool) {
	if len(b) < 1+checksumBytes {
		return nil, false
	}
	body := b[:len(b)-checksumBytes]
	return body, binary.BigEndian.Uint64(b[len(body):]) == checksum(body)
}

// Append appends the encoded request to b.
func (r *Request) Append(b []byte) []byte {
	from := len(b)
	if r.Entry != nil {
		b = append(b, formAppend)
		b = appendPosition(binary.BigEndian.AppendUint32(b, r.Keep), r.Before)
		return appendChecksum(append(b, r.Entry...), from)
	}
	b = appendPosition(append(b, formRead), r.After)
	return appendChecksum(binary.BigEndian.AppendUint32(b, r.Limit), from)
}

// Decode decodes a request.
func (r *Request) Decode(b []byte) error {
	*r = Request{}
	body, ok := cutChecksum(b)
	switch {
	case ok && body[0] == formAppend && len(body) > 21:
		r.Keep, r.Before, r.Entry = binary.BigEndian.Uint32(body[1:]), readPosition(body[5:]), body[21:]
	case ok && body[0] == formRead && len(body) == 1+16+4:
		r.After, r.Limit = readPosition(body[1:]), binary.BigEndian.Uint32(body[17:])
	default:
		return ErrFormat
	}
	return nil
}

// Append appends the encoded reply to b.
func (a *Reply) Append(b []byte) []byte {
	from := len(b)
	b = appendPosition(append(b, formReply), a.Last)
	for i := range a.Entries {
		e := &a.Entries[i]
		b = appendPosition(b, e.At)
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.Entry)))
		b = append(b, e.Entry...)
	}
	return appendChecksum(b, from)
}

// Decode decodes a reply and reuses the memory of the list of entries.
func (a *Reply) Decode(b []byte) error {
	a.Last, a.Entries = Position{}, a.Entries[:0]
	body, ok := cutChecksum(b)
	if !ok || body[0] != formReply || len(body) < 17 {
		return ErrFormat
	}
	a.Last = readPosition(body[1:])
	for body = body[17:]; len(body) > 0; {
		var e StoredEntry
		if e, body, ok = CutStoredEntry(body); !ok {
			return ErrFormat
		}
		a.Entries = append(a.Entries, e)
	}
	return nil
}

// StoredEntries returns the encoded entries of a reply that Decode has accepted, for CutStoredEntry.
func StoredEntries(b []byte) []byte { return b[17 : len(b)-checksumBytes] }

// CutStoredEntry splits the first entry off b. ok is false if b is empty or does not begin with an entry.
func CutStoredEntry(b []byte) (e StoredEntry, rest []byte, ok bool) {
	if len(b) < 20 {
		return e, nil, false
	}
	e.At = readPosition(b)
	n := binary.BigEndian.Uint32(b[16:])
	if b = b[20:]; uint64(n) > uint64(len(b)) {
		return e, nil, false
	}
	e.Entry = b[:n:n]
	return e, b[n:], true
}

func appendPosition(b []byte, p Position) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, p.Major), p.Minor)
}

func readPosition(b []byte) Position {
	return Position{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
