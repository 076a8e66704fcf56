package sharedlog

import "encoding/binary"

// An Entry is a batch of frames that one directory writes for the other directories. The frames are in the order in
// which the directory received their content.
type Entry struct {
	Author uint64 // the incarnation of the directory that wrote the entry
	Number uint64 // number of the entry among the entries of that incarnation, from 0
	Frames []byte // see AppendFrame
}

// EntryTailBytes is the number of bytes behind the frames of an entry: the checksum.
const EntryTailBytes = checksumBytes

// A FrameKind is a kind of frame.
type FrameKind uint8

// The kinds.
const (
	FrameReport     FrameKind = 1 + iota // a Report: a message of a worker
	FrameMissing                         // a Subject with missing chunks; its follower must request a full sync
	FrameUnfollowed                      // a Subject that the author no longer follows
	FrameFollowed                        // a Subject that the author follows from now on
	FrameProven                          // a Proven: a frame about a worker that proved an identity to the author
)

// Version is the version of the encoding of entries. A directory cannot read entries of other versions. It passes over
// frames of kinds that it does not know, so that a later release may add kinds without another version.
const Version = 2

// frameHeaderBytes is the size of a frame's header: the kind and the length.
const frameHeaderBytes = 1 + 4

// FrameBytes returns the size of a frame with a body of n bytes.
func FrameBytes(n int) int { return frameHeaderBytes + n }

// AppendFrame appends a frame to b.
func AppendFrame(b []byte, k FrameKind, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(len(body))), body...)
}

// CutFrame splits the first frame off b. ok is false if b is empty or does not begin with a whole frame.
func CutFrame(b []byte) (k FrameKind, body, rest []byte, ok bool) {
	if len(b) < frameHeaderBytes {
		return 0, nil, nil, false
	}
	n := binary.BigEndian.Uint32(b[1:])
	if rest = b[frameHeaderBytes:]; uint64(n) > uint64(len(rest)) {
		return 0, nil, nil, false
	}
	return FrameKind(b[0]), rest[:n:n], rest[n:], true
}

// Append appends the encoded entry to b.
func (e *Entry) Append(b []byte) []byte {
	from := len(b)
	b = append(b, formEntry, Version)
	b = binary.BigEndian.AppendUint64(b, e.Author)
	b = binary.BigEndian.AppendUint64(b, e.Number)
	return appendChecksum(append(b, e.Frames...), from)
}

// Decode decodes an entry and checks that its frames are whole. The error is ErrVersion if the entry has another version,
// and ErrFormat if it is no entry.
func (e *Entry) Decode(b []byte) error {
	*e = Entry{}
	body, ok := cutChecksum(b)
	if !ok || len(body) < 2 || body[0] != formEntry {
		return ErrFormat
	}
	if body[1] != Version {
		return ErrVersion
	}
	if len(body) < 18 {
		return ErrFormat
	}
	e.Author, e.Number, e.Frames = binary.BigEndian.Uint64(body[2:]), binary.BigEndian.Uint64(body[10:]), body[18:]
	for rest := e.Frames; len(rest) > 0; {
		if _, _, rest, ok = CutFrame(rest); !ok {
			return ErrFormat
		}
	}
	return nil
}

// A Subject is the worker that a frame is about, and the directory that follows the worker, as far as the author of the
// entry knows.
type Subject struct {
	Follower uint64
	Rank     uint32
	Instance []byte
}

// Append appends the encoded subject to b.
func (s *Subject) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, s.Follower), s.Rank)
	return append(b, s.Instance...)
}

// Decode decodes a subject.
func (s *Subject) Decode(b []byte) error {
	if len(b) <= 12 {
		return ErrFormat
	}
	*s = Subject{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), b[12:]}
	return nil
}

// A Report is a message of a worker, in the encoding of that message, and the network address from which the message
// came, so that directories that read the log can apply their quotas.
type Report struct {
	Origin uint64
	Body   []byte
}

// Append appends the encoded report to b.
func (r *Report) Append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, r.Origin), r.Body...)
}

// Decode decodes a report.
func (r *Report) Decode(b []byte) error {
	if len(b) <= 8 {
		return ErrFormat
	}
	*r = Report{binary.BigEndian.Uint64(b), b[8:]}
	return nil
}

// A Proven is a frame about a worker that proved an identity to the author. Principal is the same for equal identities
// in all processes, and never 0. Kind is not FrameProven.
type Proven struct {
	Principal uint64
	Kind      FrameKind
	Body      []byte
}

// Append appends the encoded frame to b.
func (p *Proven) Append(b []byte) []byte {
	return append(append(binary.BigEndian.AppendUint64(b, p.Principal), byte(p.Kind)), p.Body...)
}

// Decode decodes a frame.
func (p *Proven) Decode(b []byte) error {
	if len(b) <= 9 {
		return ErrFormat
	}
	*p = Proven{binary.BigEndian.Uint64(b), FrameKind(b[8]), b[9:]}
	if p.Principal == 0 || p.Kind == FrameProven {
		return ErrFormat
	}
	return nil
}
