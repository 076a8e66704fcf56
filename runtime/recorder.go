package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime/recording"
)

// recordingTimeout bounds the time for which the end of a node, and a call that saves its recording, wait for the
// recorder's goroutine.
const recordingTimeout = 5 * time.Second

// startRecording begins the recording of the machine that was just made, if one is configured.
func (b *nodeBuilder) startRecording(m *rank.Rank, machine *rank.Config, seed uint64, at effects.Time) error {
	c := &b.cfg.Recorder
	if c.Dir == "" {
		return nil
	}
	var servers []string
	for _, s := range b.driver.control.Servers() {
		servers = append(servers, fmt.Sprintf("%v %s:%d", s.Channel, s.Addr.Host, s.Addr.Port))
	}
	r, err := recording.Start(m, machine, seed, at, servers,
		recording.Options{Dir: c.Dir, BytesMax: c.Bytes, SavedMax: int(c.Saved), Log: b.driver.log})
	if err != nil {
		return openError("the recording of the state machine", "make recorder.dir a folder that this process can write to, or "+
			"remove it", err)
	}
	b.recorder = r
	b.driver.log.Info("the state machine is recorded", "file", r.Status().File, "bytes_max", c.Bytes)
	return nil
}

// Recording returns how far the recording of the node's state machine is (recorder.dir). It reports false if nothing is
// recorded.
func (n *Node) Recording() (recording.Status, bool) {
	if n.loop.recorder == nil {
		return recording.Status{}, false
	}
	return n.loop.recorder.Status(), true
}

// ErrNotRecorded is the error of SaveRecording for a node without a recorder.
var ErrNotRecorded = errors.New("the state machine is not recorded: set recorder.dir")

// SaveRecording writes what is recorded of the node's state machine to a file of its own, which the ring of recordings does
// not remove, and returns the name of the file. The call may take as long as copying recorder.bytes does.
func (n *Node) SaveRecording(why recording.Trigger) (name string, err error) {
	if n.loop.recorder == nil {
		return "", ErrNotRecorded
	}
	return saveRecording(n.loop, why)
}

// saveRecording saves the recording of a loop, and says so in the log.
func saveRecording(l *loop, why recording.Trigger) (name string, err error) {
	name, err = l.recorder.Save(why, recordingTimeout)
	if err != nil {
		l.recorder.Log().Error("the recording of the state machine was not saved", "because", string(why), "err", err)
		return name, err
	}
	l.recorder.Log().Warn("the recording of the state machine was saved", "because", string(why), "file", name)
	return name, nil
}

// stuckLooks is the number of looks at the operations in the time after which an operation counts as stuck.
const stuckLooks = 4

// watchOperations saves the recording when an operation is in progress for longer than the given time, once for each such
// operation and at most once in that time. It returns when the node's loop has ended.
func (n *Node) watchOperations(after time.Duration) {
	ticker := time.NewTicker(max(after/stuckLooks, time.Millisecond))
	defer ticker.Stop()
	// An operation that began at or before known was seen as stuck.
	var known effects.Time
	var savedAt time.Time
	for {
		select {
		case <-n.loop.ended:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), after)
		all, at, answered := n.Operations(ctx)
		cancel()
		if !answered || !savedAt.IsZero() && time.Since(savedAt) < after {
			continue
		}
		oldest, found := newStuckOperation(all, at, after, known)
		if !found {
			continue
		}
		for _, x := range all {
			if time.Duration(at.Sub(x.Since)) >= after {
				known = max(known, x.Since)
			}
		}
		savedAt = time.Now()
		n.log.Warn("an operation is in progress for longer than recorder.stuck_after", "kind", oldest.Kind, "stage", oldest.Stage,
			"seconds", time.Duration(at.Sub(oldest.Since)).Seconds(), "after", after)
		_, _ = n.SaveRecording(recording.OnStuck) // The log has the error.
	}
}

// newStuckOperation returns the oldest operation that is at least as old as after and began after known.
func newStuckOperation(all []rank.Operation, at effects.Time, after time.Duration, known effects.Time) (oldest rank.Operation, found bool) {
	for _, x := range all {
		if time.Duration(at.Sub(x.Since)) >= after && x.Since > known && (!found || x.Since < oldest.Since) {
			oldest, found = x, true
		}
	}
	return oldest, found
}
