package doctor

import (
	"fmt"
	"io"
	"strings"
)

// A Verdict rates a row by its effect on a node.
type Verdict uint8

// The verdicts, from good to bad.
const (
	OK      Verdict = iota
	Note            // works; worth knowing
	Warning         // works now, and will be slow or fail under load
	Problem         // does not work
)

// String returns the verdict as reports print it.
func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Problem:
		return "problem"
	default:
		return fmt.Sprintf("verdict(%d)", uint8(v))
	}
}

// MarshalText returns the text of String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// A Row is the result of one check. A row that is not OK has a remedy, which says what to set or install.
type Row struct {
	Name    string  `json:"name"`
	Value   string  `json:"value"`
	Verdict Verdict `json:"verdict"`
	Remedy  string  `json:"remedy,omitempty"`
}

// A Section is the rows about one part of the machine.
type Section struct {
	Name string `json:"name"`
	Rows []Row  `json:"rows"`
}

func (s *Section) addOK(name, format string, args ...any) {
	s.Rows = append(s.Rows, Row{Name: name, Value: fmt.Sprintf(format, args...)})
}

func (s *Section) addNote(name, value, remedy string) { s.addRow(name, value, Note, remedy) }

func (s *Section) addWarning(name, value, remedy string) { s.addRow(name, value, Warning, remedy) }

func (s *Section) addProblem(name, value, remedy string) { s.addRow(name, value, Problem, remedy) }

func (s *Section) addRow(name, value string, v Verdict, remedy string) {
	if v == OK {
		remedy = ""
	}
	s.Rows = append(s.Rows, Row{Name: name, Value: value, Verdict: v, Remedy: remedy})
}

// A Report is the result of all checks, with the number of rows of each verdict other than OK.
type Report struct {
	Sections []Section `json:"sections"`
	Notes    int       `json:"notes"`
	Warnings int       `json:"warnings"`
	Problems int       `json:"problems"`
}

// newReport returns a report of the sections that have rows, and counts the verdicts.
func newReport(sections ...Section) Report {
	r := Report{Sections: []Section{}}
	for _, s := range sections {
		if len(s.Rows) == 0 {
			continue
		}
		r.Sections = append(r.Sections, s)
		for _, row := range s.Rows {
			switch row.Verdict {
			case OK:
			case Note:
				r.Notes++
			case Warning:
				r.Warnings++
			case Problem:
				r.Problems++
			}
		}
	}
	return r
}

// Print writes the report as text, with one line for each row and the row's remedy below the line.
func (r Report) Print(w io.Writer) error {
	const verdictWidth = len("problem")
	width := 0
	for _, s := range r.Sections {
		for _, row := range s.Rows {
			width = max(width, len(row.Name))
		}
	}
	var b strings.Builder
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "%s\n", s.Name)
		for _, row := range s.Rows {
			fmt.Fprintf(&b, "  %-*s  %-*s  %s\n", verdictWidth, row.Verdict, width, row.Name, row.Value)
			if row.Remedy != "" {
				fmt.Fprintf(&b, "  %*s  %*s  -> %s\n", verdictWidth, "", width, "", row.Remedy)
			}
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s, %s, %s\n", formatCount(r.Problems, "problem"), formatCount(r.Warnings, "warning"), formatCount(r.Notes, "note"))
	_, err := io.WriteString(w, b.String())
	return err
}

func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
