package recording

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A Trigger is why a recording is saved. It is a part of the name of the file.
type Trigger string

// The triggers.
const (
	OnFailure Trigger = "failure" // an assertion of the machine or of its driver failed
	OnSignal  Trigger = "signal"
	OnRequest Trigger = "request" // of an operator
	OnStuck   Trigger = "stuck"   // an operation is in progress for too long
)

// ErrBusy is the error of Save while another recording is being saved.
var ErrBusy = errors.New("a recording is being saved already")

// Save writes what the ring has now, up to the last recorded step, to a file of its own, which the ring does not remove. It
// waits at most for the given time for the recorder's goroutine; the copying of the files is not bounded. The file has its
// name only when it is complete. If there are more than SavedMax saved recordings of this recorder, the oldest is removed.
func (r *Recorder) Save(why Trigger, timeout time.Duration) (name string, err error) {
	select {
	case r.saving <- struct{}{}:
		defer func() { <-r.saving }()
	default:
		return "", ErrBusy
	}
	r.Flush(timeout)
	parts, err := r.openSegments()
	defer func() {
		for _, p := range parts {
			_ = p.from.Close() // It was only read.
		}
	}()
	if err != nil {
		return "", fmt.Errorf("save the recording: %w", err)
	}
	name = fmt.Sprintf("%s-%s-%s%s", r.base, why, time.Now().UTC().Format(timeFormat), fileSuffix)
	if err := joinParts(name, parts); err != nil {
		return "", fmt.Errorf("save the recording: %w", err)
	}
	r.mu.Lock()
	r.saved = append(r.saved, name)
	var old []string
	for len(r.saved) > r.options.SavedMax {
		old, r.saved = append(old, r.saved[0]), r.saved[1:]
	}
	r.mu.Unlock()
	for _, x := range old {
		if e := os.Remove(x); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove the oldest saved recording: %w", e))
		}
	}
	return name, err
}

// A part is a file of the ring, of which so many bytes are complete, without what it has at its beginning in common with
// the first one.
type part struct {
	from *os.File
	skip int64
	size int64
}

// openSegments opens the files of the ring as they are now. The ring may remove them afterwards.
func (r *Recorder) openSegments() (parts []part, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range r.segments {
		f, err := os.Open(x.name)
		if err != nil {
			return parts, err
		}
		p := part{from: f, size: int64(x.bytes)}
		if i > 0 {
			p.skip = int64(r.headBytes)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// joinParts writes the parts, one after the other, to a file that has its name only when all of them are written.
func joinParts(name string, parts []part) error {
	unfinished := name + ".tmp"
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err == nil {
			_, err = io.Copy(f, io.NewSectionReader(p.from, p.skip, p.size-p.skip))
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(unfinished, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return nil
}
