package figures

import (
	"slices"
	"testing"
)

func TestRowsAreReadAsWritten(t *testing.T) {
	want := []Row{{"push", 5, 6, 7, 8, true}, {"pull", 1, 2, 3, 4, false}}
	got, err := ParseRows("# words\n\n" + want[0].String() + "\n  " + want[1].String() + "\n")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"push 1 2 3", "push 1 2 3 x", "push 1 2 3 4 5", "push 1 2 3 cut"} {
		if got, err := ParseRows(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}
