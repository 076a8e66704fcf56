//go:build cgo && linux

package npu

import (
	"errors"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
)

// # Order on the device
//
// A machine scatters a page after the read into the page has ended, and reads into the page again after the scatter has
// ended. That is the order that the host sees. AscendCL promises that a stream sees the stores of a second stream only
// if the first stream waits for an event after the stores. So the stream of a scatter waits for the events after the
// reads that filled its pages. The device has reached these events by then, because the machine starts a scatter only
// after the read, so the wait costs a task and no time. An event that was not reached belongs to a read that was given
// up; the stream does not wait for that event. From scatter to read no stream has to wait, because the read does not
// need the scatter's stores.

// marksMax bounds the events, because a device has few. A read needs no event once its scatter is over.
const marksMax = 64

// readMarks holds the events of the newest reads into the pools.
type readMarks struct {
	mu     sync.Mutex
	marks  []*readMark
	oldest int // index of the oldest
}

// A readMark is an event after a read.
type readMark struct {
	event   *acl.Event
	regions []plane.Region // memory that the read filled; empty: the mark is free
	waiters int            // number of scatters that may not have passed the event
}

// overlapsPage reports whether the read filled a part of a page.
func (k *readMark) overlapsPage(page device.Page) bool {
	return slices.ContainsFunc(k.regions, func(r plane.Region) bool {
		return page.Address+uintptr(page.Bytes) > r.Base && r.Base+uintptr(r.Bytes) > page.Address
	})
}

// RecordRead records an event after the work in a stream, which has just read into memory of the node's pools. Use this
// method as hccl.Config.OnReadQueued. Without a node, and while scatters wait for all marks, nothing is recorded.
func (d *Device) RecordRead(t *acl.Thread, s *acl.Stream, memory []plane.Region) error {
	p := d.openMemory()
	if p == nil || len(memory) == 0 {
		return nil
	}
	return p.marks.recordRead(t, s, memory)
}

// recordRead records an event after the stream's work.
func (m *readMarks) recordRead(t *acl.Thread, s *acl.Stream, memory []plane.Region) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.reusableMark(t)
	if k == nil || err != nil {
		return err
	}
	k.regions = k.regions[:0]
	if err := s.RecordEvent(t, k.event); err != nil {
		return err
	}
	k.regions = append(k.regions, memory...)
	return nil
}

// reusableMark returns a mark with an event that may be recorded again, or nil. Marks that a stream still has to pass
// are skipped, because a second recording would move the event.
func (m *readMarks) reusableMark(t *acl.Thread) (*readMark, error) {
	if len(m.marks) < marksMax {
		event, err := t.NewEvent(acl.EventOptions{})
		if err != nil {
			return nil, err
		}
		m.marks = append(m.marks, &readMark{event: event})
		return m.marks[len(m.marks)-1], nil
	}
	for range m.marks {
		k := m.marks[m.oldest]
		m.oldest = (m.oldest + 1) % len(m.marks)
		if k.waiters == 0 {
			return k, nil
		}
	}
	return nil, nil
}

// waitForReads makes a stream wait for the reads that filled pages. The result is the marks of these reads, which are
// not reused until releaseMarks is called with them.
func (m *readMarks) waitForReads(t *acl.Thread, s *acl.Stream, pages []device.Page) (waitedFor []*readMark, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.marks {
		if !slices.ContainsFunc(pages, k.overlapsPage) {
			continue
		}
		if reached, err := k.event.IsComplete(t); err != nil || !reached {
			continue // the read was given up, or has failed
		}
		k.waiters++
		waitedFor = append(waitedFor, k)
		if err := s.WaitEvent(t, k.event); err != nil {
			return waitedFor, err
		}
	}
	return waitedFor, nil
}

// releaseMarks releases marks after a scatter has ended.
func (m *readMarks) releaseMarks(waitedFor []*readMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range waitedFor {
		k.waiters--
	}
}

// destroyEvents destroys the events.
func (m *readMarks) destroyEvents(t *acl.Thread) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, k := range m.marks {
		errs = append(errs, k.event.Close(t))
	}
	return errors.Join(errs...)
}
