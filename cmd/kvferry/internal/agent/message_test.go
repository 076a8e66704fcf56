package agent

import (
	"reflect"
	"regexp"
	"testing"
)

// The names in requests and responses are in snake_case, and each field has a JSON tag, because Go's default would be
// CamelCase.
func TestNamesOfMessages(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*(,omitempty)?$`)
	names := 0
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			look(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if name := f.Tag.Get("json"); !snake.MatchString(name) {
					t.Errorf("%v.%s is called %q", of, f.Name, name)
				}
				names++
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[Request]())
	look(reflect.TypeFor[Response]())
	if names < 40 {
		t.Errorf("only %d names were looked at", names)
	}
}
