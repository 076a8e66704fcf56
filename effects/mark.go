package effects

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Mark is a coverage mark: it stands for a rare path through a machine, and a campaign of the simulator must have taken
// that path. A mark has no influence on decisions.
type Mark uint16

// MarksPerSet is the largest number of marks in one set.
const MarksPerSet = 64

// NewMarks returns a set of marks. S is a struct whose fields all have the type Mark; adding a field declares a mark,
// with a name that follows from the name of the field ([NameMarks]). The fields are numbered in order. The number set
// distinguishes the sets of a machine. NewMarks panics if S has more than MarksPerSet fields or a field of another
// type.
//
// Example:
//
//	//kvferry:table
//	var Marks = effects.NewMarks[struct {
//		ReplyOverdue effects.Mark
//		PeerUnfit    effects.Mark // the peer's pages have another layout
//	}](7)
//
//	e.Out.Mark(Marks.ReplyOverdue)
func NewMarks[S any](set int) (marks S) {
	var numbers []byte
	fields := binary.Size(marks) / binary.Size(Mark(0))
	if fields > MarksPerSet {
		panic(fmt.Sprintf("BUG: set %d has %d marks, and room for %d: divide it", set, fields, MarksPerSet))
	}
	for i := range fields {
		numbers = binary.NativeEndian.AppendUint16(numbers, uint16(set*MarksPerSet+i))
	}
	if _, err := binary.Decode(numbers, binary.NativeEndian, &marks); err != nil {
		panic(fmt.Sprintf("BUG: set %d has a field that is no mark: %v", set, err))
	}
	return marks
}

// A NamedMark is a mark and its name: the name of its set, a slash, and the name of its field in lower case with
// dashes.
type NamedMark struct {
	Mark Mark
	Name string
}

// NameMarks appends to all the marks of a set that NewMarks returned: field ReplyOverdue of set "put" becomes
// "put/reply-overdue".
func NameMarks(all []NamedMark, name string, set any) []NamedMark {
	for field := range strings.FieldsSeq(strings.Trim(fmt.Sprintf("%+v", set), "{}")) {
		var x NamedMark
		field, number, _ := strings.Cut(field, ":")
		if _, err := fmt.Sscan(number, &x.Mark); err != nil {
			panic(fmt.Sprintf("BUG: %q of the set %q is no mark", field, name))
		}
		x.Name = name + "/"
		for i, r := range field {
			if i > 0 && 'A' <= r && r <= 'Z' {
				x.Name += "-"
			}
			x.Name += strings.ToLower(string(r))
		}
		all = append(all, x)
	}
	return all
}
