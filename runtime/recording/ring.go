package recording

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"time"
)

// A segment is a file of the ring.
type segment struct {
	name  string
	step  uint64 // the number of steps before its first one
	bytes uint64
	begin uint64 // the bytes up to the first step: what all files begin with, and the checkpoint
}

// segmentName returns the name of a file of the ring by its number.
func segmentName(base string, number int) string {
	return fmt.Sprintf("%s-%05d%s", base, number, fileSuffix)
}

// parseSegmentName is the inverse of segmentName. It reports false for the name of a saved recording or of another file.
func parseSegmentName(name string) (base string, number int, ok bool) {
	rest, ok := strings.CutSuffix(name, fileSuffix)
	at := strings.LastIndexByte(rest, '-')
	if !ok || at < 0 {
		return "", 0, false
	}
	number, err := strconv.Atoi(rest[at+1:])
	return rest[:at], number, err == nil && segmentName(rest[:at], number) == name
}

// A ringWriter writes the files of a recorder. It belongs to the writer's goroutine.
type ringWriter struct {
	*Recorder
	frames *frameWriter
	head   []byte // with which each file begins
	number int    // of the present file
}

// openSegment begins the next file of the ring.
func (w *ringWriter) openSegment(step uint64) error {
	w.number++
	name := segmentName(w.base, w.number)
	f, err := w.options.open(name)
	if err != nil {
		return fmt.Errorf("make a recording: %w", err)
	}
	w.mu.Lock()
	w.segments = append(w.segments, segment{name: name, step: step})
	w.mu.Unlock()
	w.file = f
	if err := w.writeBytes(w.head); err != nil {
		return errors.Join(fmt.Errorf("begin the recording %s: %w", name, err), f.Close())
	}
	w.endBeginning()
	return nil
}

// current returns the file that is being written. The caller holds w.mu.
func (w *ringWriter) current() *segment { return &w.segments[len(w.segments)-1] }

// endBeginning notes that the first step of the present file follows.
func (w *ringWriter) endBeginning() {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.current()
	x.begin = x.bytes
}

func (w *ringWriter) writeBytes(b []byte) error {
	n, err := w.file.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current().bytes += uint64(n)
	return err
}

func (w *ringWriter) writeFrame(records []byte) error {
	if len(records) == 0 {
		return nil
	}
	b, err := w.frames.frame(records)
	if err != nil {
		return err
	}
	return w.writeBytes(b)
}

// write writes what is pending, until the recording has ended. It is the writer's goroutine.
func (w *ringWriter) write() {
	defer close(w.done)
	ticker := time.NewTicker(w.options.Interval)
	defer ticker.Stop()
	var spare []byte
	for {
		select {
		case <-w.wake:
		case <-ticker.C:
		}
		w.mu.Lock()
		batch, at, ended, flushed := w.pending, w.cut, w.ended, w.flushed
		w.pending, w.cut, w.flushed = spare[:0], nil, nil
		w.mu.Unlock()
		err := w.writeCut(at)
		if err == nil {
			if err = w.writeFrame(batch); err != nil {
				err = fmt.Errorf("the file cannot be written: %w", err)
			}
		}
		if spare = batch; cap(spare) > 4*frameBytes {
			spare = nil // A burst must not keep its memory.
		}
		if flushed != nil {
			close(flushed)
		}
		if err == nil && ended == "" {
			err = w.trim()
		}
		if err != nil {
			ended = err.Error()
		}
		if ended == "" {
			continue
		}
		w.mu.Lock()
		w.ended = ended
		w.recording.Store(false)
		w.pending, w.cut, w.spare = nil, nil, nil
		w.mu.Unlock()
		endErr := w.writeFrame(append([]byte{recordEnd}, ended...))
		endErr = errors.Join(endErr, w.file.Close())
		if ended != EndClosed || endErr != nil {
			s := w.Status()
			w.options.Log.Warn("the recording has ended; the node goes on without it", "file", s.File, "because", ended,
				"steps", s.Steps, "bytes", s.Bytes, "error", endErr)
		}
		return
	}
}

// writeCut ends the present file and begins the next one with a checkpoint.
func (w *ringWriter) writeCut(at *cut) error {
	if at == nil {
		return nil
	}
	if err := errors.Join(w.writeFrame(at.before), w.writeFrame([]byte{recordNext}), w.file.Close()); err != nil {
		return fmt.Errorf("the file cannot be written: %w", err)
	}
	if err := w.openSegment(at.step); err != nil {
		return err
	}
	if err := w.writeFrame(at.checkpoint); err != nil {
		return fmt.Errorf("the file cannot be written: %w", err)
	}
	w.endBeginning()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spare = at.checkpoint[:0]
	if own := w.current().begin; own > w.options.BytesMax/2 {
		return fmt.Errorf("the state of the machine takes %d bytes, more than half of recorder.bytes, %d: set it to %d or more", own,
			w.options.BytesMax, segmentsMin*own)
	}
	return nil
}

// trim removes the oldest files while all of them together are too large, and asks for a checkpoint when the present file
// is large enough. Each file has as many bytes of steps as leave at least half of the bound for files that can be
// replayed: a checkpoint is small as a rule, and then the ring has four files or more.
func (w *ringWriter) trim() error {
	w.mu.Lock()
	total := uint64(0)
	for _, x := range w.segments {
		total += x.bytes
	}
	var old []string
	for total > w.options.BytesMax && len(w.segments) > 1 {
		old = append(old, w.segments[0].name)
		total -= w.segments[0].bytes
		w.segments = w.segments[1:]
	}
	x := *w.current()
	w.mu.Unlock()
	for _, name := range old {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the oldest file of the recording cannot be removed: %w", err)
		}
	}
	share := w.options.BytesMax / segmentsMin
	if steps := max(share-min(share, x.begin), share/4); x.bytes-x.begin >= steps {
		w.wanted.Store(true)
	}
	return nil
}

// frameHeaderBytes is the size of a frame's header: the length and the CRC of the compressed records.
const frameHeaderBytes = 8

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// A frameWriter compresses records to frames.
type frameWriter struct {
	buf        bytes.Buffer
	compressor *flate.Writer
}

func newFrameWriter() *frameWriter {
	w := &frameWriter{}
	var err error
	if w.compressor, err = flate.NewWriter(&w.buf, flate.BestSpeed); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return w
}

// frame returns the frame of records. The result is valid until the next call.
func (w *frameWriter) frame(records []byte) ([]byte, error) {
	w.buf.Reset()
	w.buf.Write(make([]byte, frameHeaderBytes))
	w.compressor.Reset(&w.buf)
	if _, err := w.compressor.Write(records); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.compressor.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	b := w.buf.Bytes()
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameHeaderBytes))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[frameHeaderBytes:], crcTable))
	return b, nil
}
