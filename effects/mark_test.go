package effects

import (
	"slices"
	"testing"
)

func TestMarksAreNamedAfterTheirFields(t *testing.T) {
	marks := NewMarks[struct{ Full, ReplyOverdue Mark }](3)
	want := []NamedMark{{3 * MarksPerSet, "put/full"}, {3*MarksPerSet + 1, "put/reply-overdue"}}
	if got := NameMarks(nil, "put", marks); !slices.Equal(got, want) || marks.ReplyOverdue != want[1].Mark {
		t.Errorf("the marks are %v, want %v", got, want)
	}
}

func TestMarksOfASetAreBounded(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a set with more marks than a set may have was made")
		}
	}()
	NewMarks[struct{ Many [MarksPerSet + 1]Mark }](0)
}
