// Package sharedlog is what directories say to the log that they share: that it is to keep an entry, and what stands in
// it behind a position. A driver carries that out on whatever keeps the log; nobody else hears it. An entry is what
// another directory reads, which may be of another release: it begins with a version and ends with a sum, so what
// somebody else put into the log is no entry.
//
// The forms are bounded: no length in one asks for more memory than the bytes that came. What is read keeps pointing
// into them.
package sharedlog

import (
	"encoding/binary"
	"errors"
)

// ErrForm says that bytes are none of the forms of this package.
var ErrForm = errors.New("sharedlog: not of this form, cut short, or changed on its way")

// A Position is where an entry stands: later ones are greater. The log chooses it. Zero is before all.
type Position struct{ Major, Minor uint64 }

// Less says whether p is before o.
func (p Position) Less(o Position) bool {
	return p.Major < o.Major || p.Major == o.Major && p.Minor < o.Minor
}

// A Request is what a directory wants of the log: to append an entry, or to read.
type Request struct {
	// Entry is put at the end, if there is one. Of all entries the log keeps about those from Before on; where that is
	// zero, about the last Keep.
	Entry  []byte
	Keep   uint32
	Before Position
	// Otherwise the first Most entries after After are read.
	After Position
	Most  uint32
}

// An Answer is what the log says to a Request.
type Answer struct {
	// Last is where the last of all entries stands, the one included that was just appended; zero: there is none.
	Last    Position
	Entries []Stored
}

// Stored is one entry that was read.
type Stored struct {
	At    Position
	Entry []byte
}

// The first byte of each form.
const (
	formAppend = 'A'
	formRead   = 'R'
	formAnswer = 'L'
	formEntry  = 'E' // and the version
)

const sumBytes = 8

// sum is FNV-1a: it finds what was changed by accident. Who may write to the log may write anything.
func sum(b []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range b {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}

// seal appends the sum of what stands in b from a place on.
func seal(b []byte, from int) []byte { return binary.BigEndian.AppendUint64(b, sum(b[from:])) }

// unseal is what stands before the sum.
func unseal(b []byte) ([]byte, bool) {
	if len(b) < 1+sumBytes {
		return nil, false
	}
	body := b[:len(b)-sumBytes]
	return body, binary.BigEndian.Uint64(b[len(body):]) == sum(body)
}

// Append appends the form of a request to b.
func (r *Request) Append(b []byte) []byte {
	from := len(b)
	if r.Entry != nil {
		b = append(b, formAppend)
		b = appendPosition(binary.BigEndian.AppendUint32(b, r.Keep), r.Before)
		return seal(append(b, r.Entry...), from)
	}
	b = appendPosition(append(b, formRead), r.After)
	return seal(binary.BigEndian.AppendUint32(b, r.Most), from)
}

// Decode reads one.
func (r *Request) Decode(b []byte) error {
	*r = Request{}
	body, ok := unseal(b)
	switch {
	case ok && body[0] == formAppend && len(body) > 21:
		r.Keep, r.Before, r.Entry = binary.BigEndian.Uint32(body[1:]), position(body[5:]), body[21:]
	case ok && body[0] == formRead && len(body) == 1+16+4:
		r.After, r.Most = position(body[1:]), binary.BigEndian.Uint32(body[17:])
	default:
		return ErrForm
	}
	return nil
}

// Append appends the form of an answer to b.
func (a *Answer) Append(b []byte) []byte {
	from := len(b)
	b = appendPosition(append(b, formAnswer), a.Last)
	for i := range a.Entries {
		e := &a.Entries[i]
		b = appendPosition(b, e.At)
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.Entry)))
		b = append(b, e.Entry...)
	}
	return seal(b, from)
}

// Decode reads one. Its list is used again.
func (a *Answer) Decode(b []byte) error {
	a.Last, a.Entries = Position{}, a.Entries[:0]
	body, ok := unseal(b)
	if !ok || body[0] != formAnswer || len(body) < 17 {
		return ErrForm
	}
	a.Last = position(body[1:])
	for body = body[17:]; len(body) > 0; {
		var e Stored
		if e, body, ok = CutStored(body); !ok {
			return ErrForm
		}
		a.Entries = append(a.Entries, e)
	}
	return nil
}

// StoredOf is where the entries of an answer stand that Decode read, for CutStored.
func StoredOf(b []byte) []byte { return b[17 : len(b)-sumBytes] }

// CutStored takes the first entry of b. ok is false at its end, and where there is none.
func CutStored(b []byte) (e Stored, rest []byte, ok bool) {
	if len(b) < 20 {
		return e, nil, false
	}
	e.At = position(b)
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

func position(b []byte) Position {
	return Position{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}
