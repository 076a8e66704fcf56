package recording

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/buildinfo"
	"github.com/kvferry/kvferry/snapshot"
)

// formatVersion is the version of the format of files.
const formatVersion = 2

// magic begins each file.
const magic = "kvferry recording\n"

// The kinds of records.
const (
	recordOrigin  = 'O' // the origin
	recordEvent   = 'E' // nanoseconds since the event before, and the event
	recordEffects = 'F' // the number of effects of that event's step, their kinds, and their hash
	recordEnd     = 'X' // why the recording ends; the last record
	// A checkpoint is the number of steps before it, the time of the last one, and the state of the machine between two
	// steps, up to the end of the frame.
	recordCheckpoint = 'C'
	recordNext       = 'N' // the recording continues with a checkpoint, in the next file or in the next frame of this one
)

// A preamble is the first frame of a file, as JSON. Every format has it.
type preamble struct {
	Format int             `json:"format"`
	Schema uint64          `json:"schema,string"` // identifies the layout of all recorded types
	State  uint64          `json:"state,string"`  // identifies the layout of the state in checkpoints
	Build  buildinfo.Build `json:"build"`
}

// EndClosed is the reason of a recording that ends because its node was closed.
const EndClosed = "the node was closed"

// fileSuffix is the end of the names of recordings.
const fileSuffix = ".kvrec"

// Options configures a Recorder. Zero fields take the defaults.
type Options struct {
	Dir      string // created if it does not exist
	BytesMax uint64 // the size of all files, beyond which the oldest is removed; the default is DefaultBytes
	SavedMax int    // the number of saved recordings, beyond which the oldest is removed; the default is DefaultSaved
	// QueueBytes is the number of bytes that may wait to be written. If the file system is slower than that, the
	// recording ends. The default is 16 MiB.
	QueueBytes int
	// Interval is the longest time after which records are written. The default is a second.
	Interval time.Duration
	Log      *slog.Logger

	open func(name string) (file, error) // for tests
}

// Defaults of the recorder.
const (
	DefaultBytes = 256 << 20
	DefaultSaved = 4
)

// segmentsMin is the number of files that a recording has at least, once it has reached its size.
const segmentsMin = 4

// file is the part of *os.File that a Recorder uses.
type file interface {
	Write(b []byte) (int, error)
	Close() error
}

// Status says how far a recording is.
type Status struct {
	File      string   // the newest file
	Files     int      // the number of files of the ring
	Bytes     uint64   // size of all files of the ring
	Steps     uint64   // recorded steps, whether or not they are in a file already, or are in one no more
	FirstStep uint64   // the steps before the first one that can be replayed from the ring
	Saved     []string // the saved recordings, oldest first
	Ended     string   // why the recording has ended; empty while it goes on
}

// A Recorder records one machine. The goroutine that steps the machine calls RecordEvent before and RecordEffects after
// each step, and neither waits for the file system: a goroutine of the recorder compresses and writes. If that goroutine
// cannot keep up, the recording ends with an end record and a line in the log, and the node continues. A recording never
// has gaps: all that its files have can be replayed.
//
// The recording is a ring of files. Each file but the first begins with a checkpoint, from which a replay can start, and
// when the files have reached their size, the oldest one is removed.
type Recorder struct {
	options   Options
	base      string        // the path of all files without what differs between them
	headBytes int           // with which each file begins
	file      file          // of the writer's goroutine
	wake      chan struct{} // has a token if there is work for the writer
	done      chan struct{} // closed when the writer has ended
	saving    chan struct{} // has a token while a recording is saved

	// The fields of the goroutine that steps the machine.
	machine *rank.Rank
	walker  *snapshot.Walker
	blanker blanker
	hasher  effectHasher
	last    effects.Time // of the event before

	mu       sync.Mutex
	pending  []byte        // whole records that are not written yet
	cut      *cut          // a checkpoint that precedes what is pending; nil: none
	spare    []byte        // memory for a checkpoint
	ended    string        // nothing is recorded any more, for this reason
	flushed  chan struct{} // closed when all that is pending now has been written; nil: nobody waits
	segments []segment     // the files of the ring, oldest first; the last one is being written
	saved    []string      // the saved recordings, oldest first

	recording atomic.Bool // false after the end, so that steps need not lock
	wanted    atomic.Bool // the writer waits for a checkpoint
	steps     atomic.Uint64
}

// A cut is where a file of the ring ends and the next one begins.
type cut struct {
	before     []byte // the records in front of the checkpoint
	checkpoint []byte // the record of the checkpoint
	step       uint64 // the number of steps before it
}

// Start creates a file in the directory and begins a recording of a machine that was made of the given configuration,
// seed and time, and that has not been stepped yet. The caller must call Close.
func Start(m *rank.Rank, cfg *rank.Config, seed uint64, now effects.Time, servers []string, o Options) (*Recorder, error) {
	o.BytesMax, o.QueueBytes = cmp.Or(o.BytesMax, DefaultBytes), cmp.Or(o.QueueBytes, 16<<20)
	o.Interval, o.SavedMax = cmp.Or(o.Interval, time.Second), cmp.Or(o.SavedMax, DefaultSaved)
	if o.open == nil {
		o.open = func(name string) (file, error) { return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) }
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of recordings: %w", err)
	}
	node := m.Incarnation()
	at := time.Now().UTC().Format(timeFormat)
	r := &Recorder{options: o, base: filepath.Join(o.Dir, fmt.Sprintf("kvferry-%s-%x", at, node[:4])),
		wake: make(chan struct{}, 1), done: make(chan struct{}), saving: make(chan struct{}, 1), machine: m, walker: newStateWalker(),
		hasher: newEffectHasher(), last: now}
	if r.blanker.limits = cfg.Wire; cfg.Wire == (protocol.Limits{}) {
		r.blanker.limits = protocol.DefaultLimits()
	}
	if bytes, err := cfg.Layout.PageBytes(); err == nil {
		r.blanker.pageBytes = int(bytes)
	}
	begin, err := json.Marshal(preamble{formatVersion, codecs.schemaHash(), stateLayout(), buildinfo.Current()})
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	w := newFrameWriter()
	head := []byte(magic)
	for _, records := range [][]byte{begin, appendOrigin([]byte{recordOrigin}, &origin{*cfg, seed, now, node, servers})} {
		frame, err := w.frame(records)
		if err != nil {
			return nil, err
		}
		head = append(head, frame...)
	}
	r.headBytes = len(head)
	to := &ringWriter{Recorder: r, frames: w, head: head}
	if err := to.openSegment(0); err != nil {
		return nil, err
	}
	r.recording.Store(true)
	go to.write()
	return r, nil
}

// timeFormat is the format of instants in the names of files.
const timeFormat = "20060102T150405.000000000"

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
	case r.waitingBytes() > r.options.QueueBytes:
		r.endLocked(fmt.Sprintf("%d bytes waited to be written: the file system is slower than the node", r.waitingBytes()))
		return
	}
	if r.wanted.Load() && r.cut == nil {
		r.takeCheckpoint()
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

// waitingBytes returns the number of bytes of steps that are not written yet. The caller holds r.mu.
func (r *Recorder) waitingBytes() int {
	n := len(r.pending)
	if r.cut != nil {
		n += len(r.cut.before)
	}
	return n
}

// takeCheckpoint writes the state of the machine, as it is between two steps. The caller holds r.mu.
func (r *Recorder) takeCheckpoint() {
	b := append(r.spare[:0], recordCheckpoint)
	b = binary.AppendUvarint(b, r.steps.Load())
	b = binary.AppendVarint(b, int64(r.last))
	b = snapshot.Encode(r.walker, b, r.machine)
	r.cut, r.spare = &cut{before: r.pending, checkpoint: b, step: r.steps.Load()}, nil
	r.pending = nil
	r.wanted.Store(false)
	r.wakeWriter()
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
	s := Status{Files: len(r.segments), Steps: r.steps.Load(), Saved: slices.Clone(r.saved), Ended: r.ended}
	for _, x := range r.segments {
		s.Bytes += x.bytes
	}
	s.File, s.FirstStep = r.segments[len(r.segments)-1].name, r.segments[0].step
	return s
}

// Log returns the log of the recorder.
func (r *Recorder) Log() *slog.Logger { return r.options.Log }

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
		r.options.Log.Warn("the recording could not be completed in time", "file", r.base, "after", timeout)
	}
}
