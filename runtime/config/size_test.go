package config

import (
	"testing"
)

func TestSizeAsAFlag(t *testing.T) {
	s := Size(64 << 20)
	if s.String() != "64MiB" || s.Type() != "size" {
		t.Errorf("got %v %s", &s, s.Type())
	}
	if err := s.Set("3KB"); err != nil || s != 3000 {
		t.Errorf("got %d, %v", s, err)
	}
	if err := s.Set("much"); err == nil || s != 3000 {
		t.Errorf("a wrong size was taken as %d: %v", s, err)
	}
}
