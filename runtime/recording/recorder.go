package recording

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/buildinfo"
)

// formatVersion is the version of the format of files.
const formatVersion = 1

// magic begins each file.
const magic = "kvferry recording\n"

// The kinds of records.
const (
	recordOrigin  = 'O' // the origin
	recordEvent   = 'E' // nanoseconds since the event before, and the event
	recordEffects = 'F' // the number of effects of that event's step, their kinds, and their hash
	recordEnd     = 'X' // why the recording ends; the last record
)

// A preamble is the first frame of a file, as JSON. Every format has it.
type preamble struct {
	Format int             `json:"format"`
	Schema uint64          `json:"schema,string"` // identifies the layout of all recorded types
	Build  buildinfo.Build `json:"build"`
}

// EndClosed is the reason of a recording that ends because its node was closed.
const EndClosed = "the node was closed"

// fileSuffix is the end of the names of recordings.
const fileSuffix = ".kvrec"

// Options configures a Recorder. Zero fields take the defaults.
type Options struct {
	Dir      string // created if it does not exist
	BytesMax uint64 // the size of the file at which the recording ends; the default is DefaultBytes
	// QueueBytes is the number of bytes that may wait to be written. If the file system is slower than that, the
	// recording ends. The default is 16 MiB.
	QueueBytes int
	// Interval is the longest time after which records are written. The default is a second.
	Interval time.Duration
	Log      *slog.Logger

	open func(name string) (file, error) // for tests
}

// DefaultBytes is the default size of a file at which the recording ends.
const DefaultBytes = 256 << 20

// file is the part of *os.File that a Recorder uses.
type file interface {
	Write(b []byte) (int, error)
	Close() error
}

// Status says how far a recording is.
type Status struct {
	File  string
	Bytes uint64 // size of the file
	Steps uint64 // recorded steps, whether or not they are in the file already
	Ended string // why the recording has ended; empty while it goes on
}

// A Recorder records one machine. The goroutine that steps the machine calls RecordEvent before and RecordEffects after
// each step, and neither waits for the file system: a goroutine of the recorder compresses and writes. If that goroutine
// cannot keep up, or the file has reached its size, the recording ends with an end record and a line in the log, and the
// node continues. A recording never has gaps: all that a file has can be replayed.
type Recorder struct {
	options Options
	name    string
	file    file
	wake    chan struct{} // has a token if there is work for the writer
	done    chan struct{} // closed when the writer has ended

	// The fields of the goroutine that steps the machine.
	blanker blanker
	hasher  effectHasher
	last    effects.Time // of the event before

	mu      sync.Mutex
	pending []byte        // whole records that are not written yet
	ended   string        // nothing is recorded any more, for this reason
	flushed chan struct{} // closed when all that is pending now has been written; nil: nobody waits

	recording atomic.Bool // false after the end, so that steps need not lock
	steps     atomic.Uint64
	bytes     atomic.Uint64
}

// Start creates a file in the directory and begins a recording with the given origin of a machine. The caller must
// call Close.
func Start(node effects.Incarnation, cfg *rank.Config, seed uint64, now effects.Time, servers []string, o Options) (*Recorder, error) {
	o.BytesMax, o.QueueBytes = cmp.Or(o.BytesMax, DefaultBytes), cmp.Or(o.QueueBytes, 16<<20)
	o.Interval = cmp.Or(o.Interval, time.Second)
	if o.open == nil {
		o.open = func(name string) (file, error) { return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) }
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of recordings: %w", err)
	}
	at := time.Now().UTC().Format("20060102T150405.000000000")
	r := &Recorder{options: o, name: filepath.Join(o.Dir, fmt.Sprintf("kvferry-%s-%x%s", at, node[:4], fileSuffix)),
		wake: make(chan struct{}, 1), done: make(chan struct{}), hasher: newEffectHasher(), last: now}
	if r.blanker.limits = cfg.Wire; cfg.Wire == (protocol.Limits{}) {
		r.blanker.limits = protocol.DefaultLimits()
	}
	if bytes, err := cfg.Layout.PageBytes(); err == nil {
		r.blanker.pageBytes = int(bytes)
	}
	f, err := o.open(r.name)
	if err != nil {
		return nil, fmt.Errorf("make a recording: %w", err)
	}
	r.file = f
	begin, err := json.Marshal(preamble{formatVersion, codecs.schemaHash(), buildinfo.Current()})
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	w := newFrameWriter(r)
	if err = w.writeRaw([]byte(magic)); err == nil {
		err = w.writeFrame(begin)
	}
	if err == nil {
		err = w.writeFrame(appendOrigin([]byte{recordOrigin}, &origin{*cfg, seed, now, node, servers}))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin the recording %s: %w", r.name, err), f.Close())
	}
	r.recording.Store(true)
	go r.write(w)
	return r, nil
}

// RecordEvent records an event at the time with which the machine will be stepped. Nothing of the event is kept.
func (r *Recorder) RecordEvent(now effects.Time, ev effects.Event) {
	if !r.recording.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended != "":
		return
	case len(r.pending) > r.options.QueueBytes:
		r.endLocked(fmt.Sprintf("%d bytes waited to be written: the file system is slower than the node", len(r.pending)))
		return
	}
	before := len(r.pending)
	b := binary.AppendVarint(append(r.pending, recordEvent), int64(now.Sub(r.last)))
	b, ok := r.blanker.appendBlanked(b, ev)
	if !ok {
		r.pending = b[:before]
		r.endLocked(fmt.Sprintf("an event %T of an unknown kind", ev))
		return
	}
	r.pending, r.last = b, now
	r.steps.Add(1)
}

// RecordEffects records the effects of the event before, before any of them is carried out.
func (r *Recorder) RecordEffects(out *effects.Effects) {
	if !r.recording.Load() {
		return
	}
	hash := r.hasher.hash(out)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended != "" {
		return
	}
	b := binary.AppendUvarint(append(r.pending, recordEffects), uint64(out.Len()))
	b = appendKinds(b, out)
	r.pending = binary.LittleEndian.AppendUint64(b, hash)
	if len(r.pending) >= frameBytes {
		r.wakeWriter()
	}
}

// frameBytes is the number of bytes of records from which a frame is written at once.
const frameBytes = 256 << 10

func (r *Recorder) wakeWriter() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// endLocked ends the recording. The caller holds r.mu.
func (r *Recorder) endLocked(reason string) {
	if r.ended == "" {
		r.ended = reason
		r.recording.Store(false)
		r.wakeWriter()
	}
}

// Status returns how far the recording is.
func (r *Recorder) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{File: r.name, Bytes: r.bytes.Load(), Steps: r.steps.Load(), Ended: r.ended}
}

// Flush waits until all that was recorded is in the file, at most for the given time. It is for a process that is about
// to end by a panic.
func (r *Recorder) Flush(timeout time.Duration) {
	r.mu.Lock()
	if r.flushed == nil {
		r.flushed = make(chan struct{})
	}
	flushed := r.flushed
	r.wakeWriter()
	r.mu.Unlock()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-flushed:
	case <-r.done:
	case <-late.C:
	}
}

// Close ends the recording and waits until the file is complete, at most for the given time. It may be called again.
func (r *Recorder) Close(timeout time.Duration) {
	r.mu.Lock()
	r.endLocked(EndClosed)
	r.mu.Unlock()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-r.done:
	case <-late.C:
		r.options.Log.Warn("the recording could not be completed in time", "file", r.name, "after", timeout)
	}
}

// write writes what is pending, until the recording has ended. It is the writer's goroutine.
func (r *Recorder) write(w *frameWriter) {
	defer close(r.done)
	ticker := time.NewTicker(r.options.Interval)
	defer ticker.Stop()
	var spare []byte
	for {
		select {
		case <-r.wake:
		case <-ticker.C:
		}
		r.mu.Lock()
		batch, ended, flushed := r.pending, r.ended, r.flushed
		r.pending, r.flushed = spare[:0], nil
		r.mu.Unlock()
		var err error
		if len(batch) > 0 {
			err = w.writeFrame(batch)
		}
		if spare = batch; cap(spare) > 4*frameBytes {
			spare = nil // A burst must not keep its memory.
		}
		if flushed != nil {
			close(flushed)
		}
		if err == nil && ended == "" && r.bytes.Load() >= r.options.BytesMax {
			ended = fmt.Sprintf("the file has reached the size of recorder.bytes, %d", r.options.BytesMax)
		}
		if err != nil {
			ended = fmt.Sprintf("the file cannot be written: %v", err)
		}
		if ended == "" {
			continue
		}
		r.mu.Lock()
		r.ended = ended
		r.recording.Store(false)
		r.pending = nil
		r.mu.Unlock()
		if err == nil {
			err = w.writeFrame(append([]byte{recordEnd}, ended...))
		}
		err = errors.Join(err, r.file.Close())
		if ended != EndClosed || err != nil {
			r.options.Log.Warn("the recording has ended; the node goes on without it", "file", r.name, "because", ended,
				"steps", r.steps.Load(), "bytes", r.bytes.Load(), "error", err)
		}
		return
	}
}

// frameHeaderBytes is the size of a frame's header: the length and the CRC of the compressed records.
const frameHeaderBytes = 8

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// A frameWriter writes frames to the file of a recorder.
type frameWriter struct {
	to         *Recorder
	buf        bytes.Buffer
	compressor *flate.Writer
}

func newFrameWriter(r *Recorder) *frameWriter {
	w := &frameWriter{to: r}
	var err error
	if w.compressor, err = flate.NewWriter(&w.buf, flate.BestSpeed); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return w
}

func (w *frameWriter) writeFrame(records []byte) error {
	w.buf.Reset()
	w.buf.Write(make([]byte, frameHeaderBytes))
	w.compressor.Reset(&w.buf)
	if _, err := w.compressor.Write(records); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := w.compressor.Close(); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	b := w.buf.Bytes()
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameHeaderBytes))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[frameHeaderBytes:], crcTable))
	return w.writeRaw(b)
}

func (w *frameWriter) writeRaw(b []byte) error {
	n, err := w.to.file.Write(b)
	w.to.bytes.Add(uint64(n))
	return err
}
