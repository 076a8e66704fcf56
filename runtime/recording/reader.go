package recording

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/buildinfo"
)

// Bounds of a frame, so that a damaged file cannot exhaust the memory.
const (
	maxFrameBytes  = 256 << 20 // compressed
	maxRecordBytes = 512 << 20 // of all records of a frame
)

// A checkpoint is the state of a machine between two steps.
type checkpoint struct {
	steps uint64       // before it
	last  effects.Time // of the last of these steps
	state []byte
}

// A step is an event with what was recorded about its effects.
type step struct {
	before *checkpoint // the checkpoint in front of the step; nil: there is none

	at    effects.Time
	event effects.Event

	hasEffects bool // false if the recording ends within the step
	kinds      []effects.Kind
	hash       uint64
}

// A fileReader reads a recording.
type fileReader struct {
	from     *bufio.Reader
	frames   int
	preamble preamble
	origin   *origin

	record    decoder // the records of the present frame that were not read yet
	last      effects.Time
	end       string // the reason in the end record; empty if there is none
	cut       bool   // the file ends within a frame
	continued bool   // a checkpoint must follow, in this file or in the next one of the ring
}

// openReader reads the beginning of a recording, and refuses a recording of another build unless anyBuild is set.
func openReader(from io.Reader, anyBuild bool) (*fileReader, error) {
	r := &fileReader{from: bufio.NewReaderSize(from, 1<<16)}
	got := make([]byte, len(magic))
	if _, err := io.ReadFull(r.from, got); err != nil || string(got) != magic {
		return nil, errors.New("the file is not a recording of kvferry")
	}
	begin, err := r.readFrame()
	if err != nil {
		return nil, asDamage(err)
	}
	p := &r.preamble
	if err := json.Unmarshal(begin, p); err != nil {
		return nil, fmt.Errorf("the beginning of the recording cannot be read: %w", err)
	}
	here := buildinfo.Current()
	switch {
	case p.Format != formatVersion:
		return nil, fmt.Errorf("the recording has the format %d, and this build reads %d: replay it with the build that wrote "+
			"it (%v)", p.Format, formatVersion, p.Build)
	case !p.Build.SameSource(here) && !anyBuild:
		return nil, fmt.Errorf("another build made the recording: %v; this is %v. Replay it with the build that wrote it, or use "+
			"--any-build to see at which step this one differs", p.Build, here)
	case p.Schema != codecs.schemaHash():
		return nil, fmt.Errorf("this build (%v) has other events or another configuration than the build that made the recording "+
			"(%v), and cannot read it: replay it with the build that wrote it", here, p.Build)
	}
	first, err := r.readFrame()
	if err != nil {
		return nil, asDamage(err)
	}
	r.record = decoder{b: first}
	if r.record.take(1)[0] != recordOrigin {
		return nil, errors.New("the recording does not begin with a configuration")
	}
	r.origin = r.record.origin()
	r.last = r.origin.Now
	return r, r.record.err
}

// asDamage returns the error of a file whose beginning is incomplete.
func asDamage(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the recording ends before its first step")
	}
	return err
}

// readFrame returns the records of the next frame. At the end of the file, also within a frame, it returns io.EOF.
func (r *fileReader) readFrame() ([]byte, error) {
	var header [frameHeaderBytes]byte
	if n, err := io.ReadFull(r.from, header[:]); err != nil {
		r.cut = n > 0
		return nil, endOfFile(err)
	}
	n := binary.LittleEndian.Uint32(header[:])
	if n > maxFrameBytes {
		return nil, fmt.Errorf("frame %d is damaged: it cannot have %d bytes", r.frames, n)
	}
	var packed bytes.Buffer
	if got, err := io.CopyN(&packed, r.from, int64(n)); err != nil {
		r.cut = got < int64(n)
		return nil, endOfFile(err)
	}
	if crc32.Checksum(packed.Bytes(), crcTable) != binary.LittleEndian.Uint32(header[4:]) {
		return nil, fmt.Errorf("frame %d is damaged: its checksum differs", r.frames)
	}
	unpacker := flate.NewReader(&packed)
	b, err := io.ReadAll(io.LimitReader(unpacker, maxRecordBytes))
	if err = errors.Join(err, unpacker.Close()); err != nil {
		return nil, fmt.Errorf("frame %d is damaged: %w", r.frames, err)
	}
	r.frames++
	return b, nil
}

func endOfFile(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// peekKind returns the kind of the next record, and io.EOF at the end of the recording.
func (r *fileReader) peekKind() (byte, error) {
	for len(r.record.b) == 0 {
		if r.end != "" {
			return 0, io.EOF
		}
		b, err := r.readFrame()
		if err != nil {
			return 0, err
		}
		r.record = decoder{b: b}
	}
	return r.record.b[0], nil
}

// readCheckpoint returns the checkpoint that follows, or nil if no checkpoint follows.
func (r *fileReader) readCheckpoint() (*checkpoint, error) {
	kind, err := r.peekKind()
	if err == nil && kind == recordNext {
		r.record.take(1)
		r.continued = true
		kind, err = r.peekKind()
	}
	switch {
	case err != nil:
		return nil, err
	case kind != recordCheckpoint && r.continued:
		return nil, fmt.Errorf("frame %d has a record of kind %q where a checkpoint must be", r.frames-1, kind)
	case kind != recordCheckpoint:
		return nil, nil
	}
	r.continued = false
	d := &r.record
	d.take(1)
	c := &checkpoint{steps: d.uvarint(), last: effects.Time(d.varint())}
	if d.err != nil {
		return nil, fmt.Errorf("frame %d: %w", r.frames-1, d.err)
	}
	c.state, d.b = d.b, nil
	r.last = c.last
	return c, nil
}

// next returns the next step, and io.EOF behind the last.
func (r *fileReader) next() (s step, err error) {
	if s.before, err = r.readCheckpoint(); err != nil {
		return s, err
	}
	kind, err := r.peekKind()
	if err != nil {
		return s, err
	}
	d := &r.record
	d.take(1)
	switch kind {
	case recordEnd:
		r.end, d.b = string(d.b), nil
		return s, io.EOF
	case recordEvent:
	default:
		return s, fmt.Errorf("frame %d has a record of kind %q where an event must be", r.frames-1, kind)
	}
	s.at = r.last.Add(effects.Duration(d.varint()))
	s.event = d.event()
	if r.last = s.at; d.err != nil {
		return s, fmt.Errorf("frame %d: %w", r.frames-1, d.err)
	}
	// A file that ends here ends within the step.
	switch kind, err = r.peekKind(); {
	case errors.Is(err, io.EOF):
		return s, nil
	case err != nil:
		return s, err
	case kind != recordEffects:
		return s, nil
	}
	d.take(1)
	s.hasEffects = true
	for range d.uvarint() {
		k := d.take(1)[0]
		if d.err != nil || int(k) >= effects.KindCount {
			return s, fmt.Errorf("frame %d: %w", r.frames-1, errMalformed)
		}
		s.kinds = append(s.kinds, effects.Kind(k))
	}
	s.hash = binary.LittleEndian.Uint64(d.take(8))
	if d.err != nil {
		return s, fmt.Errorf("frame %d: %w", r.frames-1, d.err)
	}
	return s, nil
}
