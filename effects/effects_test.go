package effects

import (
	"reflect"
	"testing"
)

// Reset must empty every list and every arena, and keep their memory: a driver uses one Effects for as long as it runs.
func TestResetEmptiesEveryList(t *testing.T) {
	var o Effects
	v := reflect.ValueOf(&o).Elem()
	visit := func(f func(name string, list reflect.Value)) {
		for i := range v.NumField() {
			if x := v.Field(i); x.Kind() == reflect.Slice {
				f(v.Type().Field(i).Name, reflect.NewAt(x.Type(), x.Addr().UnsafePointer()).Elem())
			}
		}
	}
	visit(func(_ string, list reflect.Value) { list.Set(reflect.MakeSlice(list.Type(), 3, 3)) })
	o.Reset()
	visit(func(name string, list reflect.Value) {
		if list.Len() != 0 || list.Cap() != 3 {
			t.Errorf("after Reset, %s has length %d and capacity %d; want 0 and 3", name, list.Len(), list.Cap())
		}
	})
}

// The number of a code that only a later release has, and that of a code that no peer may state, mean no more than that
// the request was refused.
func TestUnknownCodesMeanRefused(t *testing.T) {
	for _, n := range []uint32{CodeCount, CodeCount + 1, 255, 256, 1 << 16, 1<<32 - 1, uint32(Failed)} {
		if got := CodeFromWire(n); got != Refused {
			t.Errorf("CodeFromWire(%d) = %d (%v), want %v", n, got, got, Refused)
		}
	}
	for n := range uint32(CodeCount) {
		if got := CodeFromWire(n); got != Code(n) && Code(n) != Failed {
			t.Errorf("CodeFromWire(%d) = %v, want %v", n, got, Code(n))
		}
	}
}
