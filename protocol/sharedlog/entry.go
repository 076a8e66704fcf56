package sharedlog

import "encoding/binary"

// An Entry is what one directory has to tell the others, at a time. Its frames stand in the order in which it heard
// them.
type Entry struct {
	Teller uint64 // one life of a directory
	Nth    uint64 // of its entries, from 0
	Frames []byte // see AppendFrame
}

// EntryTail is what stands behind the frames of an entry: its sum.
const EntryTail = sumBytes

// A Kind says what a frame is.
type Kind uint8

// The kinds.
const (
	Message Kind = 1 + iota // a Report: what a worker told
	Want                    // a Subject of which something is missing: whoever hears it is to ask it for all that it has
	Gone                    // a Subject that the teller does not hear any more
	Taken                   // a Subject that the teller hears from now on
)

// version is that of the form. Entries of another one are left alone.
const version = 2

// frameHead is the kind and the length of a frame.
const frameHead = 1 + 4

// FrameBytes is the length of a frame with a body of n bytes.
func FrameBytes(n int) int { return frameHead + n }

// AppendFrame appends one to b.
func AppendFrame(b []byte, k Kind, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(len(body))), body...)
}

// CutFrame takes the first frame of b. ok is false at its end, and where there is none.
func CutFrame(b []byte) (k Kind, body, rest []byte, ok bool) {
	if len(b) < frameHead {
		return 0, nil, nil, false
	}
	n := binary.BigEndian.Uint32(b[1:])
	if rest = b[frameHead:]; uint64(n) > uint64(len(rest)) {
		return 0, nil, nil, false
	}
	return Kind(b[0]), rest[:n:n], rest[n:], true
}

// Append appends the form of an entry to b.
func (e *Entry) Append(b []byte) []byte {
	from := len(b)
	b = append(b, formEntry, version)
	b = binary.BigEndian.AppendUint64(b, e.Teller)
	b = binary.BigEndian.AppendUint64(b, e.Nth)
	return seal(append(b, e.Frames...), from)
}

// Decode reads one.
func (e *Entry) Decode(b []byte) error {
	*e = Entry{}
	body, ok := unseal(b)
	if !ok || len(body) < 18 || body[0] != formEntry || body[1] != version {
		return ErrForm
	}
	e.Teller, e.Nth, e.Frames = binary.BigEndian.Uint64(body[2:]), binary.BigEndian.Uint64(body[10:]), body[18:]
	for rest := e.Frames; len(rest) > 0; {
		if _, _, rest, ok = CutFrame(rest); !ok {
			return ErrForm
		}
	}
	return nil
}

// A Subject is a worker that a frame is about, and the directory that heard it, as far as its teller knows.
type Subject struct {
	By       uint64
	Rank     uint32
	Instance []byte
}

// Append appends the form of a subject to b.
func (s *Subject) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, s.By), s.Rank)
	return append(b, s.Instance...)
}

// Decode reads one.
func (s *Subject) Decode(b []byte) error {
	if len(b) <= 12 {
		return ErrForm
	}
	*s = Subject{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), b[12:]}
	return nil
}

// A Report is what a worker told, in the form of its message, and the network address that it came from, for the
// quotas of whoever reads it.
type Report struct {
	Origin uint64
	Body   []byte
}

// Append appends the form of a report to b.
func (r *Report) Append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, r.Origin), r.Body...)
}

// Decode reads one.
func (r *Report) Decode(b []byte) error {
	if len(b) <= 8 {
		return ErrForm
	}
	*r = Report{binary.BigEndian.Uint64(b), b[8:]}
	return nil
}
