package pd

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/world"
)

// MachineCheckpoints writes the states of machines as bytes, as the flight recorder of a node does, and restores them.
type MachineCheckpoints struct {
	machines   *explore.MachineHasher
	buf, again []byte
}

// checkpointMemoryMax is more memory than the state of any machine of a simulation has.
const checkpointMemoryMax = 1 << 28

// Restore returns a machine that is made as n's machine was when n started, and is then given the state of n's machine.
// The error says in which way the restored machine differs from n's.
func (s *MachineCheckpoints) Restore(n *world.Node, now effects.Time) (*rank.Rank, error) {
	if s.machines == nil {
		s.machines = explore.NewMachineHasher()
	}
	original, info := rankOf(n), InfoOf(n)
	s.buf = explore.EncodeMachine(s.machines, s.buf[:0], original)
	restored, err := rank.New(info.Cfg, info.seed, info.startedAt)
	if err != nil {
		return nil, err
	}
	if err := explore.DecodeMachine(s.machines, restored, s.buf, checkpointMemoryMax); err != nil {
		return nil, err
	}
	if s.again = explore.EncodeMachine(s.machines, s.again[:0], restored); !bytes.Equal(s.buf, s.again) {
		at := 0
		for at < min(len(s.buf), len(s.again)) && s.buf[at] == s.again[at] {
			at++
		}
		return nil, fmt.Errorf("it is written as %d bytes, and the machine as %d, which differ from byte %d on", len(s.again), len(s.buf), at)
	}
	if !explore.SameMachine(s.machines, restored, original, now) {
		return nil, fmt.Errorf("it has another hash")
	}
	return restored, nil
}

// DifferingEffect returns the first effect in which the effects of two steps with the same event differ, and reports
// false if there is none. The content of pages in messages is not compared, because the driver fills it in.
func DifferingEffect(a, b *effects.Effects) (index int, differ bool) {
	for i := range min(a.Len(), b.Len()) {
		if !sameEffect(a.At(i), b.At(i)) {
			return i, true
		}
	}
	return min(a.Len(), b.Len()), a.Len() != b.Len()
}

func sameEffect(a, b effects.Effect) bool {
	x, isSend := a.(*effects.Send)
	y, bothSend := b.(*effects.Send)
	if !isSend || !bothSend || len(x.Carries) == 0 {
		return sameValue(reflect.ValueOf(a), reflect.ValueOf(b))
	}
	one, other := *x, *y
	one.Body, other.Body = bodyWithoutPages(x), bodyWithoutPages(y)
	return sameValue(reflect.ValueOf(one), reflect.ValueOf(other))
}

// sameValue compares two parts of effects. Drivers do not tell nil from an empty slice, so neither does sameValue.
func sameValue(a, b reflect.Value) bool {
	if a.Kind() != b.Kind() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	switch a.Kind() { //nolint:exhaustive // the other kinds have no parts
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || sameValue(a.Elem(), b.Elem()))
	case reflect.Struct:
		for i := range a.NumField() {
			if !sameValue(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	default:
		return a.Equal(b)
	}
}

// bodyWithoutPages returns the body of a message in front of the pages that it carries.
func bodyWithoutPages(e *effects.Send) []byte {
	size := len(e.Body)
	for _, page := range e.Carries {
		size -= int(page.Length)
	}
	return e.Body[:max(size, 0)]
}
