package session

import (
	"reflect"
	"testing"
)

// Reset must empty every list, and keep the memory: a driver uses one Effects for as long as it runs.
func TestResetEmptiesEveryList(t *testing.T) {
	var o Effects
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(reflect.MakeSlice(v.Field(i).Type(), 3, 3))
	}
	o.Reset()
	for i := range v.NumField() {
		if x := v.Field(i); x.Len() != 0 || x.Cap() != 3 {
			t.Errorf("after Reset, %s has length %d and capacity %d; want 0 and 3", v.Type().Field(i).Name, x.Len(), x.Cap())
		}
	}
}
