package main

import (
	"strings"
	"testing"
)

// TestCrossing: fields and methods are told by their type, the most used first, and what a file keeps to itself is not
// told.
func TestCrossing(t *testing.T) {
	var out strings.Builder
	if err := crossing(&out, "./testdata/two", []string{"one.go"}, []string{"*"}); err != nil {
		t.Fatal(err)
	}
	want := ""
	for _, line := range []string{"   2  shared", "   2  thing.size", "   1  thing", "   1  thing.grow"} {
		want += line + "\tone.go\t<- other.go\n"
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if err := crossing(&out, "./testdata/two", []string{"*"}, []string{"other.go"}); err != nil || out.String() != want {
		t.Errorf("the other way to say it: %v\n%s", err, out.String())
	}
	for _, c := range [][3]string{{"./testdata/two", "other.go", "one.go"}, {"./testdata/none", "one.go", "*"}} {
		if err := crossing(&out, c[0], []string{c[1]}, []string{c[2]}); err == nil {
			t.Errorf("nothing is wrong with %v", c)
		}
	}
}
