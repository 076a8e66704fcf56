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

// marks holds the events of the newest reads into the pools.
type marks struct {
	mu   sync.Mutex
	all  []*mark
	next int // index of the oldest
}

// A mark is an event after a read.
type mark struct {
	event   *acl.Event
	filled  []plane.Region // memory that the read filled; empty: the mark is free
	waiting int            // number of scatters that may not have passed the event
}

// fills reports whether the read filled a part of a page.
func (k *mark) fills(page device.Page) bool {
	return slices.ContainsFunc(k.filled, func(r plane.Region) bool {
		return page.Address+uintptr(page.Bytes) > r.Base && r.Base+uintptr(r.Bytes) > page.Address
	})
}

// Filled records an event after the work in a stream, which has just read into memory of the node's pools. Use this
// method as hccl.Config.OnReadQueued. Without a node, and while scatters wait for all marks, nothing is recorded.
func (d *Device) Filled(t *acl.Thread, s *acl.Stream, memory []plane.Region) error {
	p := d.opened()
	if p == nil || len(memory) == 0 {
		return nil
	}
	return p.marks.set(t, s, memory)
}

// set records an event after the stream's work.
func (m *marks) set(t *acl.Thread, s *acl.Stream, memory []plane.Region) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, err := m.oldest(t)
	if k == nil || err != nil {
		return err
	}
	k.filled = k.filled[:0]
	if err := s.Record(t, k.event); err != nil {
		return err
	}
	k.filled = append(k.filled, memory...)
	return nil
}

// oldest returns a mark with an event that may be recorded again, or nil. Marks that a stream still has to pass are
// skipped, because a second recording would move the event.
func (m *marks) oldest(t *acl.Thread) (*mark, error) {
	if len(m.all) < marksMax {
		event, err := t.NewEvent(acl.EventOptions{})
		if err != nil {
			return nil, err
		}
		m.all = append(m.all, &mark{event: event})
		return m.all[len(m.all)-1], nil
	}
	for range m.all {
		k := m.all[m.next]
		m.next = (m.next + 1) % len(m.all)
		if k.waiting == 0 {
			return k, nil
		}
	}
	return nil, nil
}

// wait makes a stream wait for the reads that filled pages. The result is the marks of these reads, which are not
// reused until releaseMarks is called with them.
func (m *marks) wait(t *acl.Thread, s *acl.Stream, pages []device.Page) (behind []*mark, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		if !slices.ContainsFunc(pages, k.fills) {
			continue
		}
		if reached, err := k.event.Complete(t); err != nil || !reached {
			continue // the read was given up, or has failed
		}
		k.waiting++
		behind = append(behind, k)
		if err := s.Wait(t, k.event); err != nil {
			return behind, err
		}
	}
	return behind, nil
}

// passed releases marks after a scatter has ended.
func (m *marks) passed(behind []*mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range behind {
		k.waiting--
	}
}

// close destroys the events.
func (m *marks) close(t *acl.Thread) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, k := range m.all {
		errs = append(errs, k.event.Close(t))
	}
	return errors.Join(errs...)
}
