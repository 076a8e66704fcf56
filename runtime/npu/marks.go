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
// A machine scatters a page when its read has ended, and reads into it again when its scatter has. That is order as the
// host sees it. What a stream is promised to see of another's stores, AscendCL says of events alone: so the stream of a
// scatter waits for the events behind the reads that filled its pages. They have been reached by then, as a rule of
// the machine, so the wait costs a task and no time, and one that was not reached is of a read that was given up:
// nobody waits for that. The other way round there is nothing to be seen.

// marksMax bounds the events, of which a device does not have many. Reads that were scattered long since need none.
const marksMax = 64

// marks are the newest reads into the pools.
type marks struct {
	mu   sync.Mutex
	all  []*mark
	next int // the oldest
}

// A mark is an event behind a read.
type mark struct {
	event   *acl.Event
	filled  []plane.Region // by the read; nothing: it is of no use
	waiting int            // scatters whose streams may not have passed it
}

// fills reports whether the read filled any of a page.
func (k *mark) fills(page device.Page) bool {
	return slices.ContainsFunc(k.filled, func(r plane.Region) bool {
		return page.Address+uintptr(page.Bytes) > r.Base && r.Base+uintptr(r.Bytes) > page.Address
	})
}

// Filled marks what was put into a stream so far as a read into memory of the node's pools. It is what
// hccl.Config.Filled wants. Without a node, and while all marks are waited for, it does nothing.
func (d *Device) Filled(t *acl.Thread, s *acl.Stream, memory []plane.Region) error {
	p := d.opened()
	if p == nil || len(memory) == 0 {
		return nil
	}
	return p.marks.set(t, s, memory)
}

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

// oldest is a mark that may be set anew: recording an event while a stream still has to pass it would move it.
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

// wait makes a stream wait for the reads that filled pages, and returns their marks, which stay as they are until
// passed.
func (m *marks) wait(t *acl.Thread, s *acl.Stream, pages []device.Page) (behind []*mark, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.all {
		if !slices.ContainsFunc(pages, k.fills) {
			continue
		}
		if reached, err := k.event.Complete(t); err != nil || !reached {
			continue // Its read was given up, or has failed.
		}
		k.waiting++
		behind = append(behind, k)
		if err := s.Wait(t, k.event); err != nil {
			return behind, err
		}
	}
	return behind, nil
}

// passed says that nothing waits for these marks on behalf of one scatter any more.
func (m *marks) passed(behind []*mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range behind {
		k.waiting--
	}
}

// close gives the events back.
func (m *marks) close(t *acl.Thread) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, k := range m.all {
		errs = append(errs, k.event.Close(t))
	}
	return errors.Join(errs...)
}
